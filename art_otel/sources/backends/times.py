"""Times as stores write them, text or numbers, in nanoseconds since the Unix epoch.

Invariant: no digit is lost; what is no time raises Refused. A text without an offset is UTC, as every store means it.
A number that names no unit has the one with which it is a time from 1973 to 2262: no two units have.
"""

import calendar
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from art_otel.sources.refusals import Refused

Number: TypeAlias = int | float | Decimal

decode_exactly: Final = msgspec.json.Decoder(float_hook=Decimal).decode
"""Decodes JSON with all digits of its numbers: a float has too few for nanoseconds."""

_MAX_NS: Final = 2**63
_MAX_US: Final = _MAX_NS // 1000
_UNITS: Final = (1, 1_000, 1_000_000, 1_000_000_000)
"""Nanoseconds in a nanosecond, microsecond, millisecond (as pandas writes JSON) and second."""

_LEAST_NS: Final = 10**17
_LEAST: Final = _LEAST_NS // _UNITS[-1]
"""A number below it is such a time in no unit, and stays what it is."""
_TIME: Final = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9})\d*)?(?P<offset>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def text_to_ns(text: str, field: str) -> int:
    """Convert `2026-11-20T15:05:23.394536+00:00`, `… Z` or `2026-11-20 15:05:23.394536123`. Raises Refused.

    `field` names the field for the Refused. A time before 1970 is negative.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise Refused("bad field", field, f"{text[:40]!r} is no time")
    offset = (match["offset"] or "Z").replace("Z", "+0000").replace(":", "")
    try:
        moment = datetime.fromisoformat(match["second"] + offset)
        whole = calendar.timegm(moment.astimezone(UTC).timetuple())
    except (ValueError, OverflowError) as error:
        raise Refused("bad field", field, f"{text[:40]!r} is no time: {error}") from None
    return whole * 1_000_000_000 + int((match["fraction"] or "").ljust(9, "0"))


def as_ns(time: int | str | None, field: str) -> int | None:
    """Convert a time that a store writes as a number or as text; None when there is none. Raises Refused."""
    if time is None:
        return None
    nanoseconds = text_to_ns(time, field) if isinstance(time, str) else _number_to_ns(time, field)
    if nanoseconds < 0:
        raise Refused("bad field", field, "a time before 1970")
    return nanoseconds


def _number_to_ns(number: int, field: str) -> int:
    if number < _LEAST:
        return number
    nanoseconds = number * next(unit for unit in _UNITS if number * unit >= _LEAST_NS)
    if nanoseconds >= _MAX_NS:
        raise Refused("bad field", field, f"{str(number)[:40]} is a time in no unit, from nanoseconds to seconds")
    return nanoseconds


def us_to_ns(microseconds: Number | None, field: str) -> int | None:
    """Convert microseconds, None for an unknown time; some exporters write fractions of one. Raises Refused."""
    if microseconds is None:
        return None
    if not 0 <= microseconds <= _MAX_US:  # NaN neither
        raise Refused("bad field", field, f"{microseconds!r} is no time")
    return round(Decimal(microseconds) * 1000)


def seconds_to_ns(seconds: float, field: str) -> int:
    """Convert seconds, to a microsecond: a float has no more digits. Raises Refused."""
    if not 0 <= seconds < _MAX_NS / 1_000_000_000:  # NaN neither
        raise Refused("bad field", field, f"{seconds!r:.40} is no time")
    return round(seconds * 1_000_000) * 1000
