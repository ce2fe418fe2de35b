"""Ledger: what conversions into a dataset have read, and what of the inputs is new since then.

A file of this machine is known by its content and not by its name, because logs are rotated. Invariant: bytes are
passed over only at the beginning of a file, and only where the first and the last 1,000 of them are those that were
read before. So nothing new is passed over, whatever files are called. In doubt a file is read from its beginning again,
and spans that are known change nothing.

    what happens to a file                     what is read of it
    lines are added                            the new lines
    it is renamed and a new one is begun       what is new in the one, all of the other
    it is copied and truncated                 the same
    it is compressed after it was read         what stands behind the lines that were read
    it is replaced, by a file of any size      all of the new one
    its last line is torn                      the line once it is whole JSON; 10 minutes after the last write, as it is
    it was read inside of a document           all of it again
    a line that was read torn goes on          that line again, and what follows
    it is no file of lines, and changes        all of it again
    it is an object of a store                 all of it, when no object with its ETag was read: objects are put whole

What bytes cannot tell stands in the report as the note of the file that is read, see `_note`.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from art_otel.engines.read import MARK_BYTES, Unread, entry_of, mark, marks_of, name_of, read_bytes
from art_otel.errors import SourceError
from art_otel.sources import ByteRange, InputFile, Limits, line_format
from art_otel.sources.files.encodings import compression_of
from art_otel.sources.files.inputs import HEAD_BYTES, open_input
from art_otel.store.report import LedgerEntry

_BLOCK: Final = 1 << 16
_COMPRESSED: Final = ("gzip", "zstd")

_BEGINNINGS: Final = (b"", b"{", b"[", b"\x1e", b"\xef")
"""How a line begins with which a document does, behind a mark maybe; b"" at the end of a file."""

_QUIET: Final = 10 * 60 * 10**9
"""Nanoseconds without a change after which a last line without an end is all that comes."""

_STILL: Final = 30 * 10**9
"""The same for a file that is read as a whole while others write to it."""


def unread(inputs: Sequence[InputFile], ledger: Sequence[LedgerEntry], *, follows: bool = False) -> list[Unread]:
    """Find what no earlier conversion read.

    With `follows` a file that is read as a whole waits until nothing was written to it for a while.
    """
    known = _KnownFiles(ledger)
    matches = {source: match for source in inputs if (match := known.by_name(source)) is not None}
    others = (source for source in inputs if source not in matches)
    matches |= {source: match for source in others if (match := known.by_content(source)) is not None}
    new: list[Unread] = []
    for source in inputs:
        match = matches.get(source)
        rest = _rest(source, match, follows=follows)
        if rest is not None:
            noted = msgspec.structs.replace(rest, note=_note(rest, match, known))
            new.append(Unread(noted, entry_of(noted, _end(noted)), known.replaced_by(match)))
    return new


class _Match(NamedTuple):
    """A file that begins with what was read before.

    `rest` is what stands behind it, from the last line that was read whole, in bytes of the content; None where that
    is to be looked up.
    """

    entry: LedgerEntry
    is_renamed: bool = False
    rest: tuple[int, int] | None = None


class _KnownFiles:
    """The files that were read, by their names and by how they begin."""

    def __init__(self, ledger: Sequence[LedgerEntry]) -> None:
        self._by_name: dict[str, list[LedgerEntry]] = defaultdict(list)
        self._by_head: dict[tuple[int, str | None], list[LedgerEntry]] = defaultdict(list)
        self._by_etag: dict[tuple[int, str | None], LedgerEntry] = {}
        self._matched: dict[LedgerEntry, int] = defaultdict(int)
        for entry in reversed(ledger):  # the last of a name is what stood under it last
            self._by_name[entry.name].append(entry)
            if entry.head is None:
                self._by_etag.setdefault((entry.bytes, entry.etag), entry)
            else:
                self._by_head[min(entry.bytes, MARK_BYTES), entry.head].append(entry)

    def by_name(self, source: InputFile) -> _Match | None:
        """Match a file with what was read under its name."""
        for entry in self._by_name.get(name_of(source) or "", ()):
            if _is_unchanged(source, entry) or (source.path is not None and _continues(source, entry)):
                return self._match(entry)
        return None

    def by_content(self, source: InputFile) -> _Match | None:
        """Match a file with what was read under another name."""
        if source.stored is not None:
            entry = self._by_etag.get((source.size or 0, source.stored.etag)) if source.stored.etag else None
            return entry and self._match(entry, is_renamed=True)
        if source.path is None or not source.size:
            return None
        head = read_bytes(source.path, 0, MARK_BYTES)
        for entry in self._beginning_like(head):
            if _continues(source, entry):
                return self._match(entry, is_renamed=True)
        if compression_of(head) in _COMPRESSED:
            return self._by_decompressed_content(source)
        return None

    def _by_decompressed_content(self, source: InputFile) -> _Match | None:
        """Match a file that was compressed after it was read."""
        match: _Match | None = None
        position = line_start = 0
        with suppress(SourceError), open_input(source, Limits(), lambda _: None) as opened:
            head = opened.stream.peek(HEAD_BYTES)[:MARK_BYTES]
            last = b""
            for entry in sorted(self._beginning_like(head), key=lambda entry: entry.bytes):
                while position < entry.bytes and (block := opened.stream.read(min(entry.bytes - position, _BLOCK))):
                    newline = block.rfind(b"\n")
                    line_start = position + newline + 1 if newline >= 0 else line_start
                    position += len(block)
                    last = (last + block)[-MARK_BYTES:]
                if position == entry.bytes and mark(last) == entry.tail:
                    match = _Match(entry, is_renamed=True, rest=(line_start, position))
            while match is not None and (block := opened.stream.read(_BLOCK)):
                position += len(block)
        if match is None or match.rest is None:
            return None
        return self._match(match.entry, is_renamed=True)._replace(rest=(match.rest[0], position))

    def _beginning_like(self, head: bytes) -> Iterator[LedgerEntry]:
        """The files that begin with these bytes, but for those that stand under their own names too.

        A file that stands under its own name is continued there; another file that begins like it is a copy, as far as
        the beginning is long enough to tell.
        """
        lengths = sorted({length for length, _ in self._by_head if length <= len(head)}, reverse=True)
        for length in lengths:
            for entry in self._by_head.get((length, mark(head[:length])), ()):
                if length == MARK_BYTES or entry not in self._matched:
                    yield entry

    def _match(self, entry: LedgerEntry, *, is_renamed: bool = False) -> _Match:
        self._matched[entry] += 1
        return _Match(entry, is_renamed=is_renamed)

    def replaced_by(self, match: _Match | None) -> LedgerEntry | None:
        """The entry that goes when what a file has more is read: none that other files are known by."""
        return match.entry if match is not None and self._matched[match.entry] == 1 else None

    def missing(self, source: InputFile) -> LedgerEntry | None:
        """What was read last under the name of a file, if that is now another file, and no source leads to it."""
        entry = next(iter(self._by_name.get(name_of(source) or "", ())), None)
        return entry if entry is not None and entry not in self._matched else None


def _rest(source: InputFile, match: _Match | None, *, follows: bool) -> InputFile | None:
    """What of an input is to be read now; None for nothing."""
    size = source.size
    if size is None or name_of(source) is None:
        return source
    if size == 0 or (match is not None and (match.rest[1] if match.rest else size) == match.entry.bytes):
        return None
    dump_format = line_format(source) if source.path is not None else None
    if (
        source.path is not None
        and dump_format is not None
        and compression_of(read_bytes(source.path, 0, MARK_BYTES)) is None
    ):
        start = 0 if match is None else _end_of_lines(source.path, 0, match.entry.bytes)
        if read_bytes(source.path, start, start + 1) not in _BEGINNINGS:  # inside of a document over several lines
            start = 0
        end = _end_of_lines(source.path, start, size)
        is_quiet = _is_quiet(source, _QUIET) or _is_document(source.path, end, size)
        end = size if is_quiet else end
        if start == 0 and is_quiet:
            return source
        byte_range = ByteRange(start=start, end=end, format=dump_format.name)
        return msgspec.structs.replace(source, size=end - start, byte_range=byte_range) if end > start else None
    if follows and not _is_quiet(source, _STILL):
        return None
    if match is None or match.rest is None or dump_format is None:
        return source
    start, end = match.rest
    byte_range = ByteRange(start=start, end=end, format=dump_format.name, is_decompressed=True)
    return msgspec.structs.replace(source, byte_range=byte_range)


def _note(source: InputFile, match: _Match | None, known: _KnownFiles) -> str | None:
    """What the bytes cannot tell of a file that is read."""
    if match is not None and match.is_renamed and source.byte_range is not None and match.entry.bytes < MARK_BYTES:
        return (
            f"its first {match.entry.bytes} bytes were read before as {match.entry.name}: taken for the same file,"
            " though another may begin like that"
        )
    gone = known.missing(source) if match is None and source.path is not None else None
    if gone is None:
        return None
    return (
        "is not what was read under this name before, or was changed inside, and is read from its beginning; what was"
        f" added to the other behind its byte {gone.bytes:,}, if anything, is in no source"
    )


def _end(source: InputFile) -> int:
    """Return the byte of its file up to which an input is read."""
    byte_range = source.byte_range
    return (source.size or 0) if byte_range is None or byte_range.is_decompressed else byte_range.end


def _is_unchanged(source: InputFile, entry: LedgerEntry) -> bool:
    """Whether an input is as it was when it was read, by what needs no look into it."""
    if source.size != entry.bytes:
        return False
    if source.stored is not None and (source.stored.etag or entry.etag):
        return source.stored.etag == entry.etag
    return source.mtime_ns is not None and source.mtime_ns == entry.mtime_ns


def _continues(source: InputFile, entry: LedgerEntry) -> bool:
    """Whether a file of this machine begins with what was read, as far as its marks tell."""
    if source.path is None or source.size is None or source.size < entry.bytes:
        return False
    return marks_of(source.path, entry.bytes) == (entry.head, entry.tail)


def _end_of_lines(path: Path, start: int, end: int) -> int:
    """Where the last whole line between two places ends; `start` where there is none."""
    while end > start:
        begin = max(start, end - _BLOCK)
        newline = read_bytes(path, begin, end).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return start


def _is_document(path: Path, start: int, end: int) -> bool:
    """Whether the last bytes of a file are JSON, or end a document: so nothing is to come but the end of their line."""
    if read_bytes(path, end - 1, end) not in (b"}", b"]"):
        return False
    last = read_bytes(path, start, end)
    try:
        msgspec.json.decode(last, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return len(last) == 1
    return True


def _is_quiet(source: InputFile, time_ns: int) -> bool:
    """Whether a file was not changed for so long, or its time is unknown. An object is put whole."""
    return source.stored is not None or source.mtime_ns is None or time.time_ns() - source.mtime_ns > time_ns
