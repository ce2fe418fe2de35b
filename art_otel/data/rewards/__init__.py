"""Rewards: which reward each turn is trained with, and how it is compared with those of its group."""
