"""Writing: trajectories to the part files of a dataset."""
