"""JSON that a strict decoder refuses: NaN, several values in a line, text between values, halves of characters.

Invariant: nothing here raises for any bytes. An object that is broken or torn is refused with all behind it.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from art_otel.sources.refusals import Refused
from art_otel.spans import Value

_DECODER: Final = json.JSONDecoder()
_SEPARATORS: Final = re.compile("[ \t\r\n\x1e\ufeff,\\]]*")
_BRACKET: Final = re.compile(r"[{\[]")
_LONGEST_WORD: Final = len("-Infinity")
_SURROGATES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a string; the group is half of a surrogate pair without its other half."""


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


def parse_values(data: bytes) -> Iterator[Piece]:
    """Parse one value after the other, with Python's json, which takes NaN and Infinity. The data is UTF-8."""
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
        except (ValueError, RecursionError) as error:
            if text[start] == "[" and isinstance(error, json.JSONDecodeError):  # its items are read one by one
                position = start + 1
                continue
            yield Piece(lines, _refused(error, len(text.rstrip())), text[start:])
            return
        yield Piece(lines, value)


def _skip_separators(text: str, position: int) -> int:
    match = _SEPARATORS.match(text, position)
    return match.end() if match else position


def _refused(error: Exception, end: int) -> Refused:
    """Say what is wrong with a value in a text that ends at `end`."""
    if isinstance(error, RecursionError):
        return Refused("nested too deep", detail=str(error))
    if not isinstance(error, json.JSONDecodeError):  # a number of thousands of digits
        return Refused("not JSON", detail=str(error))
    is_torn = error.msg.startswith("Unterminated string") or error.pos >= end - _LONGEST_WORD
    return Refused("torn" if is_torn else "not JSON", detail=f"{error.msg} at character {error.pos}")
