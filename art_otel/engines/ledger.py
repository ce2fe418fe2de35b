"""Ledger: find the input that no earlier conversion into a dataset has read.

Invariant: no new bytes are skipped. Bytes are skipped only at the beginning of a file with a known name, and only if
the first and the last 1,000 of them are still the same. In doubt a file is read again from its beginning: spans that
were read before change nothing.

    what happens to a file                  what is read of it
    lines are added                         the new lines
    it is renamed, or compressed            all of it again, under the new name
    it is replaced, or changed inside       all of it
    its last line is torn                   the line once it is whole JSON; 10 minutes after the last write, as it is
    it was read inside of a document        all of it again
    a line that was read torn goes on       that line again, and what follows
    it is no file of lines, and changes     all of it again
    it is an object with another ETag       all of it: objects of a store are put whole
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from art_otel.engines.read import MARK_BYTES, Unread, entry_of, marks_of, name_of, read_bytes
from art_otel.sources import ByteRange, InputFile, line_format
from art_otel.sources.files.encodings import compression_of
from art_otel.store.report import LedgerEntry

_BLOCK: Final = 1 << 16

_BEGINNINGS: Final = (b"", b"{", b"[", b"\x1e", b"\xef")
"""How a document's first line may begin: a bracket, a record separator or a byte order mark; b"" at a file's end."""

_QUIET: Final = 10 * 60 * 10**9
"""Nanoseconds without a change after which a last line without a line end counts as complete."""

_STILL: Final = 30 * 10**9
"""Nanoseconds without a change after which a file that can only be read as a whole counts as complete."""

_REPLACED: Final = "was replaced, or changed before its end, since it was last read; it is read again from the start"


def unread(inputs: Sequence[InputFile], ledger: Sequence[LedgerEntry], *, follows: bool = False) -> list[Unread]:
    """Find the inputs, or the ends of inputs, that no earlier conversion has read.

    With `follows`, a file that can only be read as a whole waits until nothing was written to it for a while.
    """
    entries = {entry.name: entry for entry in ledger}
    new: list[Unread] = []
    for source in inputs:
        entry, note = entries.get(name_of(source) or ""), None
        if entry is not None and not _is_unchanged(source, entry) and not _continues(source, entry):
            entry, note = None, _REPLACED if source.path is not None else None
        rest = _rest(source, 0 if entry is None else entry.bytes, follows=follows)
        if rest is not None:
            end = (rest.size or 0) if rest.byte_range is None else rest.byte_range.end
            new.append(Unread(msgspec.structs.replace(rest, note=note), entry_of(rest, end)))
    return new


def _is_unchanged(source: InputFile, entry: LedgerEntry) -> bool:
    """Whether an input is unchanged since it was read, by size and ETag or modification time, without opening it."""
    if source.size != entry.bytes:
        return False
    if source.stored is not None and (source.stored.etag or entry.etag):
        return source.stored.etag == entry.etag
    return source.mtime_ns is not None and source.mtime_ns == entry.mtime_ns


def _continues(source: InputFile, entry: LedgerEntry) -> bool:
    """Whether a local file still begins with the bytes that were read, judged by their first and last 1,000."""
    if source.path is None or source.size is None or source.size < entry.bytes:
        return False
    return marks_of(source.path, entry.bytes) == (entry.head, entry.tail)


def _rest(source: InputFile, known: int, *, follows: bool) -> InputFile | None:
    """The part of an input to read now, if its first `known` bytes were read before; None if there is nothing."""
    size = source.size
    if size is None or name_of(source) is None:
        return source
    if size == known:  # also of an empty file
        return None
    dump_format = line_format(source) if source.path is not None else None
    if source.path is None or dump_format is None or compression_of(read_bytes(source.path, 0, MARK_BYTES)) is not None:
        return None if follows and not _is_quiet(source, _STILL) else source
    start = _end_of_lines(source.path, 0, known)
    if read_bytes(source.path, start, start + 1) not in _BEGINNINGS:  # inside of a document over several lines
        start = 0
    end = _end_of_lines(source.path, start, size)
    if _is_quiet(source, _QUIET) or _is_document(source.path, end, size):
        end = size
        if start == 0:
            return source
    byte_range = ByteRange(start=start, end=end, format=dump_format.name)
    return msgspec.structs.replace(source, size=end - start, byte_range=byte_range) if end > start else None


def _end_of_lines(path: Path, start: int, end: int) -> int:
    """The end of the last whole line between two positions; `start` if there is none."""
    while end > start:
        begin = max(start, end - _BLOCK)
        newline = read_bytes(path, begin, end).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return start


def _is_document(path: Path, start: int, end: int) -> bool:
    """Whether the last bytes of a file are whole JSON, or the end of a document: only a line end may still come."""
    if read_bytes(path, end - 1, end) not in (b"}", b"]"):
        return False
    last = read_bytes(path, start, end)
    try:
        msgspec.json.decode(last, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return len(last) == 1
    return True


def _is_quiet(source: InputFile, time_ns: int) -> bool:
    """Whether a file was not changed for so many nanoseconds, or its time is unknown, or it is an object of a store.

    An object is always complete, because stores put it at once.
    """
    return source.stored is not None or source.mtime_ns is None or time.time_ns() - source.mtime_ns > time_ns
