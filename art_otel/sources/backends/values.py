"""Values as stores write them: times, in nanoseconds since the Unix epoch, and nested attributes, flattened.

Invariant: no digit of a time is lost; a value that is no time raises Refused. A text without an offset is in UTC, as in
every store. A number without a unit has the only unit with which it is a time from 1973 to 2262.
"""

import calendar
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from art_otel.sources.format import Refused, attribute_path
from art_otel.sources.json_documents import is_list, is_object
from art_otel.spans import Value

Number: TypeAlias = int | float | Decimal

decode_exactly: Final = msgspec.json.Decoder(float_hook=Decimal).decode
"""Decodes JSON with all digits of its numbers: a float has too few digits for nanoseconds."""

_MAX_NS: Final = 2**63
_MAX_US: Final = _MAX_NS // 1000
_UNITS: Final = (1, 1_000, 1_000_000, 1_000_000_000)
"""Nanoseconds in a nanosecond, microsecond, millisecond (as pandas writes JSON) and second."""

_LEAST_NS: Final = 10**17
_LEAST: Final = _LEAST_NS // _UNITS[-1]
"""A smaller number is no time since the epoch in any of these units."""
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


def as_ns(time: float | str | None, field: str) -> int | None:
    """Convert a time that a store writes as a number or as text; None when there is none. Raises Refused."""
    if time is None:
        return None
    nanoseconds = text_to_ns(time, field) if isinstance(time, str) else _number_to_ns(time, field)
    if nanoseconds < 0:
        raise Refused("bad field", field, "a time before 1970")
    return nanoseconds


def _number_to_ns(number: float, field: str) -> int:
    if isinstance(number, int) and number < _LEAST:
        return number
    exact = number if isinstance(number, int) else Decimal(str(number))  # a float has the digits that it shows
    unit = next((unit for unit in _UNITS if exact * unit >= _LEAST_NS), 0)
    nanoseconds = int(exact * unit)
    if not 0 < nanoseconds < _MAX_NS:
        raise Refused("bad field", field, f"{str(number)[:40]} is not a time in any unit from nanoseconds to seconds")
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


MAX_PARTS: Final = 64
"""The most nested objects and lists. Each level is a part of a name, and real names have about ten parts."""

MAX_PREFIX: Final = 512
"""Characters of a name that others go on from, each of which repeats it; real ones have less than a hundred."""

_JSON_TEXTS: Final = ("metadata", "llm.prompt_template.variables", "tool.parameters")
_JSON_TEXT_ENDING: Final = ".document.metadata"


def flatten(nested: Mapping[str, Value]) -> dict[str, Value]:
    """Name every leaf by its path; what Phoenix parsed from JSON text is JSON text again. Raises Refused."""
    flat: dict[str, Value] = {}
    _spread(nested, "", flat, 0)
    return flat


def _spread(value: Value, name: str, flat: dict[str, Value], depth: int) -> None:
    if depth > MAX_PARTS:
        raise Refused("nested too deep", attribute_path(("", name)), f"a name of more than {MAX_PARTS} parts")
    if is_object(value) and (name in _JSON_TEXTS or name.endswith(_JSON_TEXT_ENDING)):
        flat[name] = msgspec.json.encode(_without_nulls(value, name, depth)).decode()
    elif is_object(value):
        _check_prefix(name)
        for key, item in value.items():
            _spread(item, f"{name}.{key}" if name and key else name or key, flat, depth + 1)
    elif is_list(value) and any(map(is_object, value)):
        _check_prefix(name)
        for index, item in enumerate(value):
            _spread(item, f"{name}.{index}", flat, depth + 1)
    elif value is not None:
        flat[name] = value


def _check_prefix(name: str) -> None:
    if len(name) > MAX_PREFIX:
        raise Refused("bad field", attribute_path(("", name)), f"an object whose name has over {MAX_PREFIX} characters")


def _without_nulls(value: Value, name: str, depth: int) -> Value:
    if depth > MAX_PARTS:
        raise Refused("nested too deep", attribute_path(("", name)), f"JSON nested more than {MAX_PARTS} objects deep")
    if not is_object(value):
        return value
    return {key: _without_nulls(item, name, depth + 1) for key, item in value.items() if item is not None}
