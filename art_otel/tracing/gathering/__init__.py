"""Gathering: runs rollouts and returns their trajectories, with or without a set-up.

Invariant: the spans of a gathered rollout are held, in memory or on the disk, until its trajectory has been built.
"""
