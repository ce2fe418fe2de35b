"""Choosing: where trajectories come from, and which of them are learned from."""
