"""Values: narrow the value of a third-party attribute to the expected type, or to None.

    integer("12")   12          integer("twelve")   None          flag("true")   True

Invariant: the narrowing functions never raise and never guess: a value of another type becomes None. Numbers and
booleans are also accepted as text, because some stores (ClickHouse's `map<string, string>`) keep no types. `decode`
and `json_safe` raise ParseError, so that the caller can add the attribute's name.
"""

import base64
import json
import math
import re
from typing import Final, TypeAlias, cast

import msgspec

from art_otel.errors import ParseError
from art_otel.spans import Value

MAX_DEPTH: Final = 64
"""Values that are nested deeper are refused, so that later readers and writers do not run out of stack."""

_DECODER: Final = msgspec.json.Decoder()


LATEST: Final = (1 << 30,)
"""The numbers of an unknown version: it counts as the newest one."""


def version_numbers(version: str | None) -> tuple[int, ...]:
    """The numbers of a version without its beta suffix: (1, 2) for `1.2b0`; `LATEST` for None."""
    return tuple(map(int, re.findall(r"\d+", (version or "").partition("b")[0]))) or LATEST


def text(value: Value) -> str | None:
    """Return a text that is not empty; None for any other value."""
    return value if isinstance(value, str) and value else None


def number(value: Value) -> float | None:
    """A finite number, also as text. Booleans are no numbers."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and "_" in value:
        return None  # Python's float reads "1_000", but no other language writes numbers like this
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        return None
    return converted if math.isfinite(converted) else None


def integer(value: Value) -> int | None:
    """A whole number of at most 64 bits, also as text."""
    if type(value) is int:
        return value if is_int64(value) else None
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 20:
        value = int(value)  # not by way of a float, which has 53 bits
    if isinstance(value, int) and not isinstance(value, bool):
        return value if is_int64(value) else None
    converted = number(value)
    return int(converted) if converted is not None and converted.is_integer() and is_int64(converted) else None


def is_int64(value: float) -> bool:
    """Whether a whole number fits into 64 bits."""
    # Not `value in range(…)`: for a subclass of int, Python would walk through the whole range.
    return -(2**63) <= value < 2**63


def flag(value: Value) -> bool | None:
    """Return a boolean, also one that is written as text; None for any other value."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def mapping(value: Value) -> dict[str, Value] | None:
    """Return an object; None for any other value."""
    return cast("dict[str, Value]", value) if isinstance(value, dict) else None  # a type as text costs no time


def items(value: Value) -> list[Value] | None:
    """Return a list; None for any other value."""
    if isinstance(value, tuple):
        return list(cast("tuple[Value, ...]", value))
    return cast("list[Value]", value) if isinstance(value, list) else None


def place_of(entry: dict[str, Value], position: int) -> int:
    """The index that an entry of a list names, else its position in the list."""
    index = integer(entry.get("index"))
    return position if index is None or index < 0 else index


def strings(value: Value) -> tuple[str, ...]:
    """The texts of a list, also of one written as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value, _ = decode(value)
        except ParseError:
            return ()
    return tuple(item for item in items(value) or () if isinstance(item, str))


def looks_like_json(value: str) -> bool:
    """Whether a text starts as a JSON object or list does."""
    return value.lstrip()[:1] in ("{", "[")


def decode(json_text: str) -> tuple[Value, bool]:
    """Decode a JSON text; also return whether nothing in it had to be replaced.

    A text that msgspec refuses is decoded by Python's json: NaN and Infinity are floats, lone surrogates become U+FFFD.
    Raises ParseError for a text that is no JSON, or in the second attempt is nested deeper than MAX_DEPTH.
    """
    try:
        return _DECODER.decode(json_text), True
    except (ValueError, RecursionError):
        pass
    try:
        lenient: Value = json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise ParseError("", f"is not JSON ({error})") from None
    safe = _json_safe(lenient, MAX_DEPTH, keeps_numbers=True)
    return safe, safe == lenient


def json_safe(value: Value, depth: int = MAX_DEPTH) -> Value:
    """Make a value that every JSON writer accepts: finite numbers of 64 bits, valid text, bytes as base64.

    Raises ParseError if the value is nested deeper than `depth`.
    """
    return _json_safe(value, depth, keeps_numbers=False)


def _json_safe(value: Value, depth: int, *, keeps_numbers: bool) -> Value:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, int):
        return value if keeps_numbers or is_int64(value) else number(value)
    if isinstance(value, float):
        return value if keeps_numbers or math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if depth == 0:
        raise ParseError("", f"is nested deeper than {MAX_DEPTH}")
    fields = mapping(value)
    if fields is not None:
        return {
            str(_json_safe(str(name), depth, keeps_numbers=keeps_numbers)): _json_safe(
                inner, depth - 1, keeps_numbers=keeps_numbers
            )
            for name, inner in fields.items()
        }
    return [_json_safe(inner, depth - 1, keeps_numbers=keeps_numbers) for inner in items(value) or ()]


def json_value(value: Value) -> Value:
    """Decode a JSON text; a text that is no JSON, or another value, is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        decoded, _ = decode(value)
    except ParseError:
        return value
    return decoded


def write_json(value: Value) -> str:
    """Write a value as compact JSON with sorted keys: equal values give equal text. Raises ParseError."""
    return msgspec.json.encode(json_safe(value), order="deterministic").decode()


_SPACED: Final = json.JSONEncoder(ensure_ascii=False)


def spaced_json(value: Value) -> str:
    """Write a value as Python's json does, with `, ` and `: `. Raises ParseError when it cannot be written."""
    try:
        return _SPACED.encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise ParseError("", f"cannot be written as JSON ({error})") from None


RawFields: TypeAlias = dict[str, msgspec.Raw]
RAW_FIELDS: Final = msgspec.json.Decoder(RawFields)
"""Reads the fields of a JSON object, each with its original bytes. Raises one of UNREADABLE."""
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders for bytes that are no JSON, or have another shape."""


def raw_fields(body: bytes) -> RawFields:
    """The fields of a JSON object; empty for anything else."""
    try:
        return RAW_FIELDS.decode(body)
    except UNREADABLE:
        return {}


def json_object(body: bytes) -> dict[str, Value] | None:
    """The JSON object of a body or of an event's data; None for anything else."""
    try:
        return mapping(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return mapping(decode(body.decode(errors="replace"))[0])
    except ParseError:
        return None
