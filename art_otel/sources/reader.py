"""read_file: the records of one input, whatever its format and compression.

Invariant: what stands in a file never raises; only a file that cannot be opened, or that somebody named and whose
format nobody knows, raises SourceError.
"""

import io
from collections.abc import Callable, Iterator

import msgspec

from art_otel.errors import SourceError
from art_otel.scrubbing import Scrubbing
from art_otel.sources.files.inputs import WHAT_READS_IT, Input, is_dataset_file
from art_otel.sources.files.splits import lines_before
from art_otel.sources.files.streams import HEAD_BYTES, OpenInput, Prefetcher, open_input
from art_otel.sources.format import (
    UNKNOWN_FORMAT,
    FileStats,
    Format,
    Limits,
    Reading,
    Record,
    Refused,
    all_formats,
    detect_format,
    detect_table,
    format_named,
)
from art_otel.spans import Quarantined, Span


def read_file(
    input: Input,  # noqa: A002 # it is one, and nobody reads the keyboard here
    stats: FileStats,
    *,
    limits: Limits | None = None,
    on_bytes: Callable[[int], None] | None = None,
    format: Format | None = None,  # noqa: A002 # what people call it, and nothing is formatted here
    scrub: Scrubbing = "on",
    prefetcher: Prefetcher | None = None,
) -> Iterator[Record]:
    """Read every record of one file in its order, and fill `stats` on the way.

    `on_bytes` is told how many bytes of the file (compressed ones) each read took, for a progress bar. `format` is what
    somebody says the file is; without it the content decides. `scrub` says what is done to secrets in logs of agents;
    other formats are read as they are. `prefetcher` fetches files of stores before they are
    read; without it each is fetched when it is read. Raises SourceError, at the first record, for a file
    that cannot be opened or read, and for one that was named explicitly but whose format nobody knows; one found in a
    folder gives nothing then and says so in `stats.note`.
    """
    stats.path = input.name

    def consumed(count: int) -> None:
        stats.bytes += count
        if on_bytes is not None:
            on_bytes(count)

    reading = Reading(path=input.name, limits=limits or Limits(), stats=stats, scrub=scrub)
    try:
        with open_input(input, reading.limits, consumed, prefetcher) as opened:
            stats.compression = opened.compression
            if opened.compression == "parquet":
                yield from _read_table(input, opened, reading, format)
                consumed(max((input.size or 0) - stats.bytes, 0))
                return
            dump_format = format or (format_named(input.byte_range.format) if input.byte_range else None)
            dump_format = dump_format or _detect(opened.stream, input, stats)
            if dump_format is not None:
                stats.format, stats.lacks = dump_format.name, dump_format.lacks
                records = _counted(dump_format.reads(opened.stream, reading), opened, reading)
                yield from _in_whole_file(records, input) if input.byte_range else records
            elif opened.failures:
                yield from _end(opened, None, reading)
            if opened.became_shorter:
                stats.error = f"{input.name}: became shorter while it was read; read it again when nobody changes it"
    except SourceError as error:
        stats.error = str(error)
        raise


def _read_table(source: Input, opened: OpenInput, reading: Reading, dump_format: Format | None) -> Iterator[Record]:
    """Read the records of a Parquet file."""
    from art_otel.sources.files.parquet import open_table  # noqa: PLC0415 # few dumps are Parquet

    stats = reading.stats
    with open_table(source, opened.stream) as table:
        dump_format = dump_format or detect_table(table.names)
        if dump_format is None or dump_format.table is None or table.is_dataset_file:
            _refuse(source, stats, WHAT_READS_IT if table.is_dataset_file else None)
            return
        stats.format, stats.lacks = dump_format.name, dump_format.lacks
        rows = table.rows(dump_format.table.columns(table.names), reading.limits, opened.failures.append)
        yield from _counted(dump_format.table.reads(rows, reading), opened, reading)


def _detect(stream: io.BufferedReader, source: Input, stats: FileStats) -> Format | None:
    head = stream.peek(HEAD_BYTES)
    dump_format = detect_format(head)
    if dump_format is None and not head.strip():
        stats.note = "empty"
    elif dump_format is None:
        is_own = source.path is not None and is_dataset_file(source.path)
        _refuse(source, stats, WHAT_READS_IT if is_own else None)
    return dump_format


def _refuse(source: Input, stats: FileStats, why: str | None) -> None:
    """Note that nothing can be read of a file. Raises SourceError for one that somebody named."""
    if source.explicit:
        names = ", ".join(each.name for each in all_formats())
        why = why or f"no known format; known are {names}, each plain or with gzip or zstd"
        raise SourceError(f"{source.name}: {why}")
    stats.note = UNKNOWN_FORMAT


def _counted(records: Iterator[Record], opened: OpenInput, reading: Reading) -> Iterator[Record]:
    """Count the records in the stats, and add what cannot be read of the stream."""
    stats = reading.stats
    last: Record | None = None
    for last in records:
        if isinstance(last, Span):
            stats.spans += 1
        elif isinstance(last, Quarantined):
            stats.partly_quarantined += last.partial
            stats.quarantined += not last.partial
        elif last.span_id:  # those without are counted already
            stats.log_records += 1
        yield last
    yield from _end(opened, last, reading)


def _in_whole_file(records: Iterator[Record], source: Input) -> Iterator[Record]:
    """Give the quarantined records of a byte range the line numbers that they have in the whole file."""
    lines: int | None = None
    for record in records:
        if not isinstance(record, Quarantined) or source.byte_range is None:
            yield record
            continue
        if lines is None:  # they are rare, and counting lines takes time
            lines = lines_before(source, source.byte_range.start)
        yield _renumbered(record, source.name, lines)


def _renumbered(quarantined: Quarantined, name: str, lines: int) -> Quarantined:
    number, slash, rest = quarantined.path.removeprefix(f"{name}:").partition(" / ")
    if not quarantined.path.startswith(f"{name}:") or not number.isdecimal():
        return quarantined
    return msgspec.structs.replace(quarantined, path=f"{name}:{int(number) + lines}{slash}{rest}")


def _end(opened: OpenInput, last: Record | None, reading: Reading) -> Iterator[Record]:
    """Quarantine each piece of the stream that cannot be read, unless `last` says already that its end is torn."""
    is_torn = isinstance(last, Quarantined) and last.reason == "torn"
    for reason, detail, location in opened.failures:
        if location or reason != "torn" or not is_torn:
            reading.stats.quarantined += 1
            yield Refused(reason, detail=detail).quarantine(f"{reading.path}:{location}" if location else reading.path)
