"""Ledger: what conversions into a dataset have read, and what of the inputs is new since then.

Invariant: no byte of an input is taken into a dataset twice. A file of lines that grew, as a live app's spool does,
gives its new lines; a last one without an end waits for the next time, unless nobody writes to the file any more.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from art_otel.errors import SourceError
from art_otel.sources import ByteRange, Input, cuttable_format

_BLOCK: Final = 1 << 16
_QUIET: Final = 60 * 10**9
"""Nanoseconds without a change after which a last line without an end is all that comes."""

_STILL: Final = 30 * 10**9
"""The same for a file that is read as a whole."""


def unread(inputs: Iterable[Input], ledger: Mapping[str, int], *, follows: bool = False) -> Iterator[Input]:
    """What no earlier conversion took. Raises SourceError for a file that was changed and did not only grow.

    Who `follows` files that others write gets such a file again whole, and one that cannot be cut when nobody wrote to
    it for a while.
    """
    for source in inputs:
        name, size = _name(source), source.size
        taken = ledger.get(name or "", 0)
        if name is None or size is None:  # a pipe: nobody can say what it gave before
            yield source
        elif size < taken and not follows:
            raise _changed(source)
        elif size != taken:
            yield from _rest(source, taken if taken < size else 0, size, follows=follows)


def ledger_of(inputs: Iterable[Input]) -> dict[str, int]:
    """How far each input is read, by its path or URL."""
    named = ((_name(source), source) for source in inputs)
    return {name: source.byte_range.end if source.byte_range else source.size or 0 for name, source in named if name}


def _rest(source: Input, taken: int, size: int, *, follows: bool) -> Iterator[Input]:
    age = None if source.mtime_ns is None else time.time_ns() - source.mtime_ns
    dump_format = cuttable_format(source) if source.path is not None else None
    if source.path is None or dump_format is None or dump_format.cuts is None:
        if taken and not follows:
            raise _changed(source)
        if not follows or age is None or age > _STILL:
            yield source
        return
    end = size if age is not None and age > _QUIET else _end_of_lines(source.path, taken, size)
    if end > taken:
        byte_range = ByteRange(start=taken, end=end, format=dump_format.name)
        yield msgspec.structs.replace(source, size=end - taken, byte_range=byte_range)


def _end_of_lines(path: Path, start: int, end: int) -> int:
    """Where the last whole line between two places ends; `start` where there is none."""
    with path.open("rb") as file:
        while end > start:
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return start


def _name(source: Input) -> str | None:
    if source.stored is not None:
        return source.stored.name
    if source.path is None or source.size is None:
        return None
    return os.fsencode(os.path.realpath(source.path)).decode(errors="backslashreplace")  # a name need not be text


def _changed(source: Input) -> SourceError:
    return SourceError(
        f"{source.name}: was changed since it was converted into this folder, and not by lines at its end; convert"
        " everything anew, without --incremental"
    )
