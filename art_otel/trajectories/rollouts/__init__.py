"""Rollouts: which rollout each span belongs to, and what its own span says about it."""
