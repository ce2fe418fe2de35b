"""What can be had of JSON that a strict decoder refuses.

Invariant: libraries read it, and say where a value ends. Python's json takes NaN and Infinity, jiter a text that ends
too early. Nothing here raises for any bytes.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import jiter
import msgspec

from art_otel.sources.json_text.kinds import is_list, is_object
from art_otel.sources.refusals import Refused
from art_otel.spans import Value

_TRUNCATED: Final = "Input data was truncated"
_DECODER: Final = json.JSONDecoder()
_MARKS: Final = " \t\r\n\x1e\ufeff,]"
_BRACKET: Final = re.compile(r"[{\[]")
_LONGEST_WORD: Final = len("-Infinity")
_SURROGATES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a string; the group is half of a surrogate pair without its other half."""

_SENTINELS: Final = (",null", ',"":null', "")
"""Written behind a torn text, so that what is open there ends with it. Which one fits depends on the open bracket."""


class Piece(NamedTuple):
    """A value of a text that begins so many lines after it, or else the `text` of what is none and the `problem`.

    A torn object is given as far as it goes.
    """

    lines: int
    value: Value = None
    problem: Refused | None = None
    text: str = ""


def syntax_of(data: bytes) -> Literal["whole", "torn", "broken"]:
    """Whether it is one JSON value, good as far as it goes, or neither, apart from what is `repaired`."""
    try:
        msgspec.json.decode(repaired(data)[0], type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return "torn" if str(error) == _TRUNCATED else "broken"
    return "whole"


def repaired(data: bytes) -> tuple[bytes, int]:
    """The text with U+FFFD for each byte that is no UTF-8 and each half of a surrogate pair, and how many those are.

    OTel JS writes such halves when it cuts a text inside an emoji, C++ and Go such bytes.
    """
    if data.isascii() and b"\\ud" not in data and b"\\uD" not in data:
        return data, 0
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())
    halves = 0

    def replace(escape: re.Match[str]) -> str:
        nonlocal halves
        halves += escape[1] is not None
        return escape[0] if escape[1] is None else "\ufffd"

    text = _SURROGATES.sub(replace, text)
    return text.encode(), replaced + halves


def pieces(data: bytes, beginning: re.Pattern[str] | None = None) -> Iterator[Piece]:
    """Every value in a text that is not one: several, glued together, amid other text, or broken. See `repaired`.

    `beginning` matches how a value begins, and nothing inside one: a writer that died may have left one torn before it.
    """
    text = data.decode()
    at = counted = lines = 0
    while (at := _skip_marks(text, at)) < len(text):
        lines, counted = lines + text.count("\n", counted, at), at
        bracket = _BRACKET.search(text, at)
        start = bracket.start() if bracket else len(text)
        if start > at:
            yield Piece(lines, problem=Refused("not JSON", detail="text between the records"), text=text[at:start])
            at = start
            continue
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if text[at] == "[":  # a list without its end: its items are read one by one
                at += 1
                continue
            after = beginning.search(text, at + 1) if beginning and beginning.match(text, at) else None
            end = after.start() if after else len(text)
            yield _broken(text[at:end], error, error.pos - at, lines)
            at = end
        except (RecursionError, ValueError) as error:  # a number of thousands of digits is the other one
            deep = isinstance(error, RecursionError)
            problem = Refused("nested too deep" if deep else "not JSON", detail=str(error))
            yield Piece(lines, problem=problem, text=text[at:])
            return
        else:
            yield Piece(lines, value)


class RecordLists(NamedTuple):
    """Where the records stand in an object: in `lists`, below fields with `names`."""

    names: frozenset[str]
    lists: frozenset[str]

    def split(self, torn: Value) -> tuple[dict[str, Value] | None, Value]:
        """A torn object without the record at the tear, and that record. The object is None if it is one itself."""
        if not is_object(torn) or self.names.isdisjoint(torn):
            return None, torn
        inner: Value = torn
        may_hold = True
        while inner:
            if is_list(inner):
                last = inner[-1]
                if last is None:  # it stands for what is torn
                    inner.pop()
            elif is_object(inner):
                name, last = next(reversed(inner.items()))
                may_hold = may_hold and name in self.names
                if may_hold and name in self.lists and is_list(last):
                    return torn, last.pop() if last else None
            else:
                break
            inner = last
        return torn, None


def _skip_marks(text: str, at: int) -> int:
    """Where the next thing stands that is no white space and no mark of a list that is read item by item."""
    while at < len(text) and text[at] in _MARKS:
        at += 1
    return at


def _broken(text: str, error: json.JSONDecodeError, place: int, lines: int) -> Piece:
    detail = f"{error.msg} at character {place}"
    if error.msg.startswith("Unterminated string") or place >= len(text.rstrip()) - _LONGEST_WORD:
        return Piece(lines, _before_tear(text), Refused("torn", detail=detail), text)
    return Piece(lines, problem=Refused("not JSON", detail=detail), text=text)


def _before_tear(text: str) -> Value:
    for sentinel in _SENTINELS:
        with contextlib.suppress(ValueError):
            return jiter.from_json((text.rstrip(" \t\r\n,") + sentinel).encode(), partial_mode="trailing-strings")
    return None
