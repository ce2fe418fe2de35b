"""JSON that a strict decoder refuses: NaN, several values in a line, text between values, halves of characters.

Invariant: nothing here raises for any bytes. An object that is broken or torn is refused with all behind it, up to the
beginning of another one that its writer cannot have written inside it. Of one that ends too early the element at the
tear goes: a record, or a field of an object around records.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import jiter
import msgspec

from art_otel.sources.refusals import Refused
from art_otel.spans import Value

_DECODER: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile("[ \t\r\n\x1e\ufeff,\\]]*")
_BRACKET: Final = re.compile(r"[{\[]")
_LONGEST_WORD: Final = len("-Infinity")
_SURROGATES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a string; the group is half of a surrogate pair without its other half."""

_TORN_MEMBER: Final = re.compile(r'(?:,|(?<=[{\[]))\s*+(?:"[^"\\]*+(?:"\s*+(?::\s*+[\w.+-]*+)?)?|[\w.+-]*+)$')
"""A name without its value, or a word that may go on. jiter would leave it out, so that what is whole looked torn."""

_MAX_MEMBER: Final = 4 << 10
"""Characters at the end of a text in which a torn member is looked for."""

_SENTINELS: Final = (",null", ',"":null', "")
"""Written behind a torn text, so that what is open there ends with it. Which one fits depends on the open bracket."""


class Piece(NamedTuple):
    """A value that begins `lines` lines after its document, or the Refused of a `text` that is none."""

    lines: int
    value: Value | Refused
    text: str = ""


def repair(data: bytes) -> tuple[bytes, int]:
    """Write U+FFFD for each byte that is no UTF-8 and each half of a surrogate pair, and count them.

    OTel JS writes such halves when it cuts a text inside an emoji, C++ and Go such bytes.
    """
    if data.isascii() and b"\\ud" not in data and b"\\uD" not in data:
        return data, 0
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())

    def replace(escape: re.Match[str]) -> str:
        nonlocal replaced
        replaced += escape[1] is not None
        return escape[0] if escape[1] is None else "\ufffd"

    text = _SURROGATES.sub(replace, text)
    return text.encode(), replaced


def parse_values(data: bytes, beginning: re.Pattern[str] | None = None) -> Iterator[Piece]:
    """Parse one value after the other, with Python's json, which takes NaN and Infinity. The data is UTF-8.

    `beginning` matches how a value begins, and nothing inside one: a writer that died may have left one torn before it.
    """
    text = data.decode()
    position = counted = lines = 0
    while (position := _skip_separators(text, position)) < len(text):
        lines, counted = lines + text.count("\n", counted, position), position
        bracket = _BRACKET.search(text, position)
        start = bracket.start() if bracket else len(text)
        if start > position:
            noise = text[position:start]
            yield Piece(lines, Refused("not JSON", detail="text between the records"), noise)
            position = start
            continue
        try:
            value, position = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if text[start] == "[":  # its items are read one by one
                position = start + 1
                continue
            following = beginning.search(text, start + 1) if beginning and beginning.match(text, start) else None
            position = following.start() if following else len(text)
            broken = text[start:position]
            yield Piece(lines, _refused(error, error.pos - start, len(broken.rstrip())), broken)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is the other one
            reason = "nested too deep" if isinstance(error, RecursionError) else "not JSON"
            yield Piece(lines, Refused(reason, detail=str(error)), text[start:])
            return
        else:
            yield Piece(lines, value)


def parse_torn(text: str) -> Value:
    """Parse a torn text as far as it goes. What is open at its end may hold one null more; None for what is no JSON."""
    text = text.rstrip()
    member = _TORN_MEMBER.search(text, max(0, len(text) - _MAX_MEMBER))
    text = text[: member.start()] if member else text
    for sentinel in _SENTINELS:
        with contextlib.suppress(ValueError):
            return jiter.from_json((text + sentinel).encode(), partial_mode="trailing-strings")
    return None


def _skip_separators(text: str, position: int) -> int:
    match = _BETWEEN.match(text, position)
    return match.end() if match else position


def _refused(error: json.JSONDecodeError, position: int, end: int) -> Refused:
    """Say what is wrong at a position in a value that ends at `end`."""
    is_torn = error.msg.startswith("Unterminated string") or position >= end - _LONGEST_WORD
    return Refused("torn" if is_torn else "not JSON", detail=f"{error.msg} at character {position}")


_Step: TypeAlias = tuple[Any, Any]
"""A list or an object, and the key of its last value."""


def split_torn(text: str, holders: frozenset[str]) -> tuple[list[Value], Value]:
    """Parse a torn text: a list of the value without its element at the tear (empty if it is that), and the element.

    Objects around records have the fields `holders`, which lead to them. Records have none of them.
    """
    values = [parse_torn(text)]
    steps: list[_Step] = [(values, -1)]
    while (step := _next_step(*steps[-1], holders)) is not None:
        steps.append(step)
    while steps[-1][1] in holders and len(holders.intersection(steps[-1][0])) == 1:
        steps.pop()  # nothing else is in the object, so it is the element
    container, key = steps[-1]
    return values, container.pop(key)


def _next_step(container: Any, key: Any, holders: frozenset[str]) -> _Step | None:  # noqa: ANN401 # see _Step
    """Go into what stands last, which is torn, as long as there may be records in it."""
    last: Value = container[key]
    if key != -1 and key not in holders:
        return None
    if is_list(last) and last:
        return last, -1
    return (last, next(reversed(last))) if is_object(last) and not holders.isdisjoint(last) else None


def is_object(value: Value) -> TypeGuard[dict[str, Value]]:
    """Whether a value is an object."""
    return isinstance(value, dict)


def object_or_empty(value: Value) -> dict[str, Value]:
    """An object; an empty one for any other value."""
    return value if is_object(value) else {}


def is_list(value: Value) -> TypeGuard[list[Value]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def items_of(value: Value) -> Iterator[Value]:
    """Flatten lists, lists of lists, and the answers of APIs, `{"data": […]}`; any other value is one item."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if is_object(item) and is_list(item.get("data")):
            item = item["data"]
        if is_list(item):
            waiting.extend(reversed(item))
        else:
            yield item


def encode(value: Value) -> str:
    """JSON text of a JSON value."""
    try:
        return msgspec.json.encode(value).decode()
    except OverflowError:  # a whole number of more than 64 bits
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def text_or_none(value: Value) -> str | None:
    """A text; None for any other value."""
    return value if isinstance(value, str) else None
