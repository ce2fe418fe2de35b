"""Sharing puts the page and its answers into one file, or into a frame of a notebook."""
