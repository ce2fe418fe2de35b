"""Reader: `read_file` reads the records of one input; `plan_splits` divides inputs among tasks.

    for source in find_inputs(["dumps/"]):
        for record in read_file(source, FileStats()):
            ...

Invariant: no content of a file raises an error. Only a file that cannot be opened, or that the user named and that has
no known format, raises SourceError. Every byte of the inputs is in exactly one split; a byte range begins and ends at
line ends; the splits depend on the inputs and `split_bytes` only.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

import msgspec

from art_otel.errors import SourceError
from art_otel.scrubbing import SecretRules
from art_otel.sources.files.encodings import compression_of
from art_otel.sources.files.inputs import (
    HEAD_BYTES,
    WHAT_READS_IT,
    ByteRange,
    InputFile,
    OpenInput,
    is_dataset_file,
    open_input,
)
from art_otel.sources.files.stores import Prefetcher, read_range
from art_otel.sources.format import (
    UNKNOWN_FORMAT,
    FileStats,
    Limits,
    Reading,
    Record,
    Refused,
    SourceFormat,
    all_formats,
    detect_format,
    detect_table,
    format_named,
)
from art_otel.spans import Quarantined, Span

_BLOCK: Final = 1 << 20
_LOOKAHEAD: Final = 1 << 12
"""The most bytes that a pattern of `SourceFormat.cuts` needs to match."""


def read_file(
    input: InputFile,  # noqa: A002 # it is one, and nobody reads the keyboard here
    stats: FileStats,
    *,
    limits: Limits | None = None,
    on_bytes: Callable[[int], None] | None = None,
    format: SourceFormat | None = None,  # noqa: A002 # what people call it, and nothing is formatted here
    secrets: SecretRules | None = None,
    prefetcher: Prefetcher | None = None,
) -> Iterator[Record]:
    """Read every record of one file in its order, and fill `stats` on the way.

    `on_bytes` is called with the (compressed) bytes of each read, for a progress bar. `format` is the file's format;
    None: detected by content. `secrets` are rules for secrets in logs of agents; other formats are read unchanged.
    `prefetcher` fetches files of stores early; without it each file is fetched when it is read.

    Raises SourceError, at the first record, for a file that cannot be opened or read, and for a file of unknown format
    that the user named. A file of unknown format in a folder gives nothing, with a note in `stats.note`.
    """
    stats.path = input.name

    def consumed(count: int) -> None:
        stats.bytes += count
        if on_bytes is not None:
            on_bytes(count)

    reading = Reading(path=input.name, limits=limits or Limits(), stats=stats, secrets=secrets or SecretRules())
    try:
        with open_input(input, reading.limits, consumed, prefetcher) as opened:
            stats.compression = opened.compression
            if opened.compression == "parquet":
                yield from _read_table(input, opened, reading, format)
                # Columns that are not needed are not read: for a progress bar the whole file is done all the same.
                consumed(max((input.size or 0) - stats.bytes, 0))
                return
            dump_format = format or (format_named(input.byte_range.format) if input.byte_range else None)
            dump_format = dump_format or _detect(opened.stream, input, stats)
            if dump_format is not None:
                stats.format, stats.not_in_format = dump_format.name, dump_format.not_in_format
                records = _counted(dump_format.reads(opened.stream, reading), opened, reading)
                yield from _in_whole_file(records, input) if input.byte_range else records
            elif opened.failures:
                yield from _end(opened, None, reading)
            if opened.became_shorter:
                stats.error = f"{input.name}: was truncated while it was read; read it again when it no longer changes"
    except SourceError as error:
        stats.error = str(error)
        raise


def _read_table(
    source: InputFile, opened: OpenInput, reading: Reading, dump_format: SourceFormat | None
) -> Iterator[Record]:
    """Read the records of a Parquet file."""
    from art_otel.sources.files.parquet import open_table  # noqa: PLC0415 # few dumps are Parquet

    stats = reading.stats
    with open_table(source, opened.stream) as table:
        dump_format = dump_format or detect_table(table.names)
        if dump_format is None or dump_format.table is None or table.is_dataset_file:
            _refuse(source, stats, WHAT_READS_IT if table.is_dataset_file else None)
            return
        stats.format, stats.not_in_format = dump_format.name, dump_format.not_in_format
        rows = table.rows(dump_format.table.columns(table.names), reading.limits, opened.failures.append)
        yield from _counted(dump_format.table.reads(rows, reading), opened, reading)


def _detect(stream: io.BufferedReader, source: InputFile, stats: FileStats) -> SourceFormat | None:
    head = stream.peek(HEAD_BYTES)
    dump_format = detect_format(head)
    if dump_format is None and not head.strip():
        stats.note = "empty"
    elif dump_format is None:
        is_own = source.path is not None and is_dataset_file(source.path)
        _refuse(source, stats, WHAT_READS_IT if is_own else None)
    return dump_format


def _refuse(source: InputFile, stats: FileStats, why: str | None) -> None:
    """Note that nothing can be read of a file. Raises SourceError for one that the user named."""
    if source.explicit:
        names = ", ".join(each.name for each in all_formats())
        why = why or f"no known format; known are {names}, each plain or with gzip or zstd"
        raise SourceError(f"{source.name}: {why}")
    stats.note = UNKNOWN_FORMAT


def _counted(records: Iterator[Record], opened: OpenInput, reading: Reading) -> Iterator[Record]:
    """Count the records in the stats, and add a Quarantined for each unreadable piece of the stream."""
    stats = reading.stats
    last: Record | None = None
    for last in records:
        if isinstance(last, Span):
            stats.spans += 1
        elif isinstance(last, Quarantined):
            stats.partly_quarantined += last.partial
            stats.quarantined += not last.partial
        elif last.span_id:  # log records without a span were counted before
            stats.log_records += 1
        yield last
    yield from _end(opened, last, reading)


def _in_whole_file(records: Iterator[Record], source: InputFile) -> Iterator[Record]:
    """Give the quarantined records of a byte range the line numbers that they have in the whole file."""
    lines: int | None = None
    for record in records:
        if not isinstance(record, Quarantined) or source.byte_range is None:
            yield record
            continue
        if lines is None:  # counted only now: quarantined records are rare, and counting lines takes time
            lines = _lines_before(source, source.byte_range.start)
        yield _renumbered(record, source.name, lines)


def _renumbered(quarantined: Quarantined, name: str, lines: int) -> Quarantined:
    number, slash, rest = quarantined.path.removeprefix(f"{name}:").partition(" / ")
    if not quarantined.path.startswith(f"{name}:") or not number.isdecimal():
        return quarantined
    return msgspec.structs.replace(quarantined, path=f"{name}:{int(number) + lines}{slash}{rest}")


def _end(opened: OpenInput, last: Record | None, reading: Reading) -> Iterator[Record]:
    """Quarantine each unreadable piece of the stream; but not a torn end that `last` has reported already."""
    is_torn = isinstance(last, Quarantined) and last.reason == "torn"
    for reason, detail, location in opened.failures:
        if location or reason != "torn" or not is_torn:
            reading.stats.quarantined += 1
            yield Refused(reason, detail=detail).quarantine(f"{reading.path}:{location}" if location else reading.path)


def plan_splits(
    inputs: Sequence[InputFile], split_bytes: int, dump_format: SourceFormat | None = None
) -> list[tuple[InputFile, ...]]:
    """Divide the inputs, in their order, into splits of about `split_bytes`.

    Small inputs share a split. A larger one is cut, if its format (given or detected) can be cut, else it is a split of
    its own. Inputs of unknown size count as small.
    """
    splits: list[tuple[InputFile, ...]] = []
    together: list[InputFile] = []
    size = 0
    for source in inputs:
        for part in _parts(source, split_bytes, dump_format):
            if together and size + (part.size or 0) > split_bytes:
                splits.append(tuple(together))
                together, size = [], 0
            together.append(part)
            size += part.size or 0
    return [*splits, tuple(together)] if together else splits


def _parts(source: InputFile, split_bytes: int, dump_format: SourceFormat | None) -> Iterable[InputFile]:
    """Cut an input into parts of about equal size; return the input itself if it cannot be cut."""
    size = source.size or 0
    if source.byte_range is not None:
        return (source,)
    dump_format = _cuttable_format(source, dump_format) if size > split_bytes else None
    if dump_format is None or dump_format.cuts is None:
        return (source,)
    count = -(-size // split_bytes)
    ends = [0]
    for number in range(1, count):
        ends.append(_next_cut(source, max(size * number // count, ends[-1]), dump_format.cuts))
    ends = sorted({*ends, size})
    if len(ends) == 2:  # only its begin and its end: no cut was found
        return (source,)
    return [
        msgspec.structs.replace(
            source, size=end - start, byte_range=ByteRange(start=start, end=end, format=dump_format.name)
        )
        for start, end in pairwise(ends)
    ]


def line_format(source: InputFile) -> SourceFormat | None:
    """Find the format of an input, compressed or not, if it is a format of lines; otherwise None."""
    dump_format: SourceFormat | None = None
    with suppress(SourceError), open_input(source, Limits(), lambda _: None) as opened:
        dump_format = detect_format(opened.stream.peek(HEAD_BYTES))
    return None if dump_format is None or dump_format.cuts is None else dump_format


def _cuttable_format(source: InputFile, dump_format: SourceFormat | None = None) -> SourceFormat | None:
    """Find the format of an input that can be cut; None for one that cannot."""
    head = next(_blocks(source, 0), b"")
    if compression_of(head) is not None:
        return None  # tested first: fast levels of zstd leave text readable, which would be detected
    dump_format = dump_format or detect_format(head)
    return dump_format if dump_format is not None and dump_format.detects(head) else None


def _next_cut(source: InputFile, position: int, cuts: re.Pattern[bytes]) -> int:
    """Find the next place where the input can be cut, block by block; its end if there is none."""
    data = b""
    for block in _blocks(source, position):
        data += block
        if cut := _first_cut(data, cuts):
            return position + cut
        position += max(len(data) - _LOOKAHEAD, 0)
        data = data[-_LOOKAHEAD:]
    return position + len(data)


def _first_cut(data: bytes, cuts: re.Pattern[bytes]) -> int | None:
    """Find the first line after which the bytes can be cut. The pattern is slow, so only line ends are tried."""
    end = data.find(b"\n")
    while end >= 0:
        if cut := cuts.match(data, end):
            return cut.end()
        end = data.find(b"\n", end + 1)
    return None


def _blocks(source: InputFile, start: int) -> Iterator[bytes]:
    """Read the bytes of an input from `start` on; nothing if it cannot be opened (reading it later reports why)."""
    size = source.byte_range.end if source.byte_range else source.size or 0
    with suppress(OSError, SourceError):
        if source.stored is not None:
            for at in range(start, size, _BLOCK):
                yield read_range(source.stored, at, min(at + _BLOCK, size))
        elif source.path is not None:
            with source.path.open("rb") as file:
                file.seek(start)
                while block := file.read(max(_BLOCK, HEAD_BYTES)):
                    yield block


def _lines_before(source: InputFile, position: int) -> int:
    """Count the lines of an input before a position in bytes."""
    count = 0
    for block in _blocks(source, 0):
        if len(block) >= position:
            return count + block.count(b"\n", 0, position)
        count += block.count(b"\n")
        position -= len(block)
    return count
