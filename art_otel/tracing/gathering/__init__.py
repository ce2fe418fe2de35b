"""Gathering: run rollouts and return their trajectories, with or without a set-up.

Invariant: what a gathered rollout recorded is held in memory or on the disk until its trajectory has been built.
"""
