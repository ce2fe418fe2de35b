"""Rows: a trajectory as the columns of its row, and back."""
