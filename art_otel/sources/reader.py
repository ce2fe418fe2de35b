"""read_file: the records of one input, whatever its format and compression.

Invariant: what stands in a file never raises; only a file that cannot be opened, or that somebody named and whose
format nobody knows, raises SourceError.
"""

import io
from collections.abc import Callable, Iterator

import msgspec

from art_otel.errors import SourceError
from art_otel.sources.account import UNKNOWN_FORMAT, FileAccount
from art_otel.sources.files.inputs import Input
from art_otel.sources.files.own_output import WHAT_READS_IT, is_own_output
from art_otel.sources.files.prefetch import Prefetcher
from art_otel.sources.files.splits import lines_before
from art_otel.sources.files.streams import HEAD_BYTES, OpenInput, open_input
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.formats import FORMATS, detect_format, detect_table, format_named
from art_otel.sources.limits import Limits
from art_otel.sources.refusals import Refused
from art_otel.spans import Quarantined, Span


def read_file(
    input: Input,  # noqa: A002 # it is one, and nobody reads the keyboard here
    account: FileAccount,
    *,
    limits: Limits | None = None,
    on_bytes: Callable[[int], None] | None = None,
    format: Format | None = None,  # noqa: A002 # what people call it, and nothing is formatted here
    prefetcher: Prefetcher | None = None,
) -> Iterator[Record]:
    """Every record of one file in its order; `account` is filled on the way.

    `on_bytes` is told how many bytes of the file (compressed ones) each read took, for a progress bar. `format` is what
    somebody says the file is; without it the content decides. `prefetcher` fetches files of stores before they are
    read; without it each is fetched when it is read. Raises SourceError, at the first record, for a file
    that cannot be opened or read, and for one that was named explicitly but whose format nobody knows; one found in a
    folder gives nothing then and says so in `account.note`.
    """
    account.path = input.name

    def consumed(count: int) -> None:
        account.bytes += count
        if on_bytes is not None:
            on_bytes(count)

    reading = Reading(path=input.name, limits=limits or Limits(), account=account)
    try:
        with open_input(input, reading.limits, consumed, prefetcher) as opened:
            account.compression = opened.compression
            if opened.compression == "parquet":
                yield from _read_table(input, opened, reading, format)
                consumed(max((input.size or 0) - account.bytes, 0))
                return
            dump_format = format or (format_named(input.part.format) if input.part else None)
            dump_format = dump_format or _detect(opened.stream, input, account)
            if dump_format is not None:
                account.format, account.lacks = dump_format.name, dump_format.lacks
                records = _counted(dump_format.reads(opened.stream, reading), opened, reading)
                yield from _in_whole_file(records, input) if input.part else records
            elif opened.failures:
                yield from _end(opened, None, reading)
            if opened.became_shorter:
                account.error = f"{input.name}: became shorter while it was read; read it again when nobody changes it"
    except SourceError as error:
        account.error = str(error)
        raise


def _read_table(source: Input, opened: OpenInput, reading: Reading, dump_format: Format | None) -> Iterator[Record]:
    """The records of a Parquet file."""
    from art_otel.sources.files.parquet import open_table  # noqa: PLC0415 # few dumps are Parquet

    account = reading.account
    with open_table(source, opened.stream) as table:
        dump_format = dump_format or detect_table(table.names)
        if dump_format is None or dump_format.table is None or table.is_own_output:
            _refuse(source, account, WHAT_READS_IT if table.is_own_output else None)
            return
        account.format, account.lacks = dump_format.name, dump_format.lacks
        rows = table.rows(dump_format.table.columns(table.names), reading.limits, opened.failures.append)
        yield from _counted(dump_format.table.reads(rows, reading), opened, reading)


def _detect(stream: io.BufferedReader, source: Input, account: FileAccount) -> Format | None:
    head = stream.peek(HEAD_BYTES)
    dump_format = detect_format(head)
    if dump_format is None and not head.strip():
        account.note = "empty"
    elif dump_format is None:
        is_own = source.path is not None and is_own_output(source.path)
        _refuse(source, account, WHAT_READS_IT if is_own else None)
    return dump_format


def _refuse(source: Input, account: FileAccount, why: str | None) -> None:
    """Note that nothing can be read of a file. Raises SourceError for one that somebody named."""
    if source.explicit:
        names = ", ".join(each.name for each in FORMATS)
        why = why or f"no known format; known are {names}, each plain or with gzip or zstd"
        raise SourceError(f"{source.name}: {why}")
    account.note = UNKNOWN_FORMAT


def _counted(records: Iterator[Record], opened: OpenInput, reading: Reading) -> Iterator[Record]:
    """The records, counted in the account, and behind them what cannot be read of the stream."""
    account = reading.account
    last: Record | None = None
    for last in records:
        if isinstance(last, Span):
            account.spans += 1
        elif isinstance(last, Quarantined):
            account.partly_damaged += last.partial
            account.damaged += not last.partial
        elif last.span_id:  # those without are in the account
            account.log_records += 1
        yield last
    yield from _end(opened, last, reading)


def _in_whole_file(records: Iterator[Record], source: Input) -> Iterator[Record]:
    """The records of a part, the quarantined ones with the line numbers that they have in the whole file."""
    first: int | None = None
    for record in records:
        if not isinstance(record, Quarantined) or source.part is None or source.path is None:
            yield record
            continue
        if first is None:  # they are rare, and counting lines takes time
            first = lines_before(source.path, source.part.start)
        yield _behind(record, source.name, first)


def _behind(damage: Quarantined, name: str, lines: int) -> Quarantined:
    number, slash, rest = damage.path.removeprefix(f"{name}:").partition(" / ")
    if not damage.path.startswith(f"{name}:") or not number.isdecimal():
        return damage
    return msgspec.structs.replace(damage, path=f"{name}:{int(number) + lines}{slash}{rest}")


def _end(opened: OpenInput, last: Record | None, reading: Reading) -> Iterator[Record]:
    """Each piece of the stream that cannot be read as Quarantined, unless `last` says that its end is torn."""
    is_torn = isinstance(last, Quarantined) and last.reason == "torn"
    for reason, detail, place in opened.failures:
        if place or reason != "torn" or not is_torn:
            reading.account.damaged += 1
            yield Refused(reason, detail=detail).damage(f"{reading.path}:{place}" if place else reading.path)
