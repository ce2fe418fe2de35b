"""Limits: how many rollouts are known at once, and for how long."""

from typing import Final

GRACE: Final = 60.0
"""In seconds. A received rollout that does not count its spans has ended when no span of it came for so long."""

MAX_OPEN: Final = 10_000
"""How many open rollouts one process holds."""
MAX_AGE: Final = 6 * 3600.0
"""In seconds. A rollout of this process is let go so long after it opened, a received one so long after its last span.
"""
