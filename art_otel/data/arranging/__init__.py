"""Arranging: in which order sequences come, which share a batch, and the batch as arrays."""
