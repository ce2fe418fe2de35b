"""Limits: how many rollouts are known at once, and for how long."""

from typing import Final

MAX_OPEN: Final = 10_000
"""How many open rollouts one process holds."""
MAX_AGE: Final = 6 * 3600.0
"""Seconds from its start until a process's own rollout is let go; since its last span until a received one is forgotten.
"""
