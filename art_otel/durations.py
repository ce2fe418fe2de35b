"""Durations: times as people write them.

Invariant: the unit is written, or it is seconds.
"""

import re
from typing import Final

from art_otel.errors import UsageError

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def seconds_of(text: str) -> float:
    """Read `90`, `90s`, `15m`, `2h` or `30d`. Raises UsageError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no time: write 90s, 15m, 2h or 30d")
    return float(match[1]) * _UNITS[match[2]]
