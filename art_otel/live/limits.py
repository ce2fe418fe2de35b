"""Limits: how many rollouts are known at once, and for how long."""

from typing import Final

MAX_OPEN: Final = 10_000
"""Open rollouts of one process."""
MAX_AGE: Final = 6 * 3600.0
"""Seconds after which the oldest rollout of a process is no longer held, and a received one is forgotten."""
