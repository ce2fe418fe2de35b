"""Rewards: what each reward is for, and what several of one name come to."""
