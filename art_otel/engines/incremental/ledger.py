"""Ledger: what conversions into a dataset have read, and what of the inputs is new since then.

Invariant: no byte of an input is taken into a dataset twice. A file of lines that grew, as a live app's spool does,
gives its new lines; a last one without an end waits for the next time, unless nobody writes to the file any more. Any
other input is read as a whole, and one that was changed or replaced since is never passed over.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from art_otel.errors import SourceError
from art_otel.sources import ByteRange, Format, Input, cuttable_format
from art_otel.store.dataset.manifest import LedgerEntry

_BLOCK: Final = 1 << 16
_QUIET: Final = 60 * 10**9
"""Nanoseconds without a change after which a last line without an end is all that comes."""

_STILL: Final = 30 * 10**9
"""The same for a file that is read as a whole."""

_NOTHING: Final = LedgerEntry(bytes=0)


def unread(inputs: Iterable[Input], ledger: Mapping[str, LedgerEntry], *, follows: bool = False) -> Iterator[Input]:
    """What no earlier conversion took. Raises SourceError for a file that was changed and did not only grow.

    Who `follows` files that others write gets such a file again whole, and one that cannot be cut when nobody wrote to
    it for a while.
    """
    for source in inputs:
        name, size = _name(source), source.size
        entry = ledger.get(name or "", _NOTHING)
        if name is None or size is None:  # a pipe: nobody can say what it gave before
            yield source
        elif size < entry.bytes and not follows:
            raise _changed(source)
        elif size != entry.bytes:
            yield from _rest(source, entry.bytes if entry.bytes < size else 0, size, follows=follows)
        elif _has_other_content(source, entry):
            yield from _again(source, follows=follows)


def ledger_of(inputs: Iterable[Input]) -> dict[str, LedgerEntry]:
    """What of each input is read, by its path or URL."""
    named = ((_name(source), source) for source in inputs)
    return {name: _entry(source) for name, source in named if name}


def _entry(source: Input) -> LedgerEntry:
    etag = source.stored and source.stored.etag
    return LedgerEntry(
        bytes=source.byte_range.end if source.byte_range else source.size or 0,
        etag=etag,
        mtime_ns=source.mtime_ns if etag is None else None,
    )


def _has_other_content(source: Input, entry: LedgerEntry) -> bool:
    """Whether an input of the same size is another than the one that was read; of a file of lines the size says it."""
    now = _entry(source)
    if now.etag is not None and entry.etag is not None:
        return now.etag != entry.etag
    if now.mtime_ns is None or entry.mtime_ns is None or now.mtime_ns == entry.mtime_ns:
        return False
    return _line_format(source) is None


def _rest(source: Input, taken: int, size: int, *, follows: bool) -> Iterator[Input]:
    dump_format = _line_format(source)
    if source.path is None or dump_format is None:
        if taken:
            yield from _again(source, follows=follows)
        elif not follows or _is_quiet(source, _STILL):
            yield source
        return
    end = size if source.mtime_ns is not None and _is_quiet(source, _QUIET) else _end_of_lines(source.path, taken, size)
    if end > taken:
        byte_range = ByteRange(start=taken, end=end, format=dump_format.name)
        yield msgspec.structs.replace(source, size=end - taken, byte_range=byte_range)


def _again(source: Input, *, follows: bool) -> Iterator[Input]:
    """An input that is read as a whole, and of which something was read before it was changed."""
    if not follows:
        raise _changed(source)
    if _is_quiet(source, _STILL):
        yield source


def _line_format(source: Input) -> Format | None:
    """The format of a file of this machine that grows by lines."""
    dump_format = cuttable_format(source) if source.path is not None else None
    return None if dump_format is None or dump_format.cuts is None else dump_format


def _is_quiet(source: Input, time_ns: int) -> bool:
    """Whether nobody changed it for so long, or nobody knows. An object is put whole."""
    return source.stored is not None or source.mtime_ns is None or time.time_ns() - source.mtime_ns > time_ns


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
