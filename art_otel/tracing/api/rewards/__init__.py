"""Rewards: what an app gives, to whom, and what a rollout was given."""
