"""The dataset: which part files a folder or URL holds, and how a new set of them takes the place of the old."""
