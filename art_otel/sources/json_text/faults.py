"""What is wrong with a piece of JSON, as a reason of Quarantined and the path to the fault.

Invariant: nothing here raises for any bytes, and a piece that is sound JSON in UTF-8 has no fault.
"""

import codecs
import re
from typing import Final

import msgspec

from art_otel.sources.refusals import Refused

_UTF8_CHUNK: Final = 1 << 16
_CHUNK: Final = 1 << 10
_UP_TO_LONE_SURROGATE: Final = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\(?!u[dD][89a-fA-F]).)*+(?P<lone>\\u)?", re.DOTALL
)
_FAULT: Final = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_NOT_FINITE: Final = re.compile(rb'("(?:[^"\\]++|\\.?)*+"?)|-?\bInfinity\b|\bNaN\b', re.DOTALL)
_LONGEST: Final = len("-Infinity")
_PLACE: Final = re.compile(r"\(byte (\d+)\)$")

TRUNCATED: Final = "Input data was truncated"
"""msgspec's words for JSON that is good as far as it goes."""


def syntax_problem(data: bytes | memoryview) -> Refused | None:
    """Why it is no JSON; None when it is."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except RecursionError:
        return Refused("nested too deep", detail="deeper than any reader goes")
    except msgspec.DecodeError as error:
        if _has_lone_surrogate(data):
            return Refused("lone surrogate", detail="a \\u escape of half a character")
        return Refused("not JSON", detail=str(error))
    return None


def json_problem(data: bytes) -> Refused | None:
    """As `syntax_problem`, but a piece that only ends too early is torn, and bare NaN or Infinity are told apart."""
    problem = syntax_problem(data)
    if problem is None or problem.reason != "not JSON":
        return problem
    if problem.detail == TRUNCATED:
        return Refused("torn", detail=problem.detail)
    if (b"NaN" in data or b"Infinity" in data) and _is_sound_but_for_numbers(data, problem):
        return Refused("not a finite number", detail=problem.detail)
    return problem


def _is_sound_but_for_numbers(data: bytes, problem: Refused | None) -> bool:
    """Whether it is JSON with another value for each bare NaN and Infinity.

    They are replaced up to a little behind each fault, twice as far each time: most text has another fault soon.
    """
    replaced = 0
    while problem is not None:
        place = _PLACE.search(problem.detail)
        if place is None or int(place[1]) < replaced - _LONGEST or replaced >= len(data):
            return False
        replaced = 2 * int(place[1]) + _CHUNK
        data = _NOT_FINITE.sub(_as_long, data[:replaced]) + data[replaced:]
        problem = syntax_problem(data)
    return True


def _as_long(match: re.Match[bytes]) -> bytes:
    """The string that it is, or a value as long as the number; neither another number nor a name can stand there."""
    return match[1] or b"[]".ljust(len(match[0]))


def fault_path(message: str) -> str:
    """The path to a field of the wrong type, with which msgspec's message ends; empty for the whole object."""
    match = _FAULT.search(message)
    return match[1] if match else ""


def is_utf8(data: bytes | memoryview) -> bool:
    """Whether all of it is UTF-8, also what a decoder skips. In chunks: a text may be four times its bytes."""
    if isinstance(data, bytes) and data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(data)
    try:
        for start in range(0, len(view), _UTF8_CHUNK):
            decoder.decode(view[start : start + _UTF8_CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _has_lone_surrogate(data: bytes | memoryview) -> bool:
    match = _UP_TO_LONE_SURROGATE.match(data)
    return match is not None and match["lone"] is not None
