"""Accounting: what is missing from a trajectory, and where every record of a group went."""
