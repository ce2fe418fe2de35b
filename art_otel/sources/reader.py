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
from art_otel.sources.files.parts import lines_before
from art_otel.sources.files.read_ahead import ReadAhead
from art_otel.sources.files.streams import HEAD_BYTES, DumpStream, open_input
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.formats import FORMATS, detect_format, format_named
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
    ahead: ReadAhead | None = None,
) -> Iterator[Record]:
    """Every record of one file in its order; `account` is filled on the way.

    `on_bytes` is told how many bytes of the file (compressed ones) each read took, for a progress bar. `format` is what
    somebody says the file is; without it the content decides. `ahead` fetches files of stores before they are read,
    several at a time; without it each is fetched when it is read. Raises SourceError, at the first record, for a file
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
        with open_input(input, reading.limits, consumed, ahead) as stream:
            account.compression = stream.compression
            known = format or (format_named(input.part.format) if input.part else _detect(stream, input, account))
            if known is not None:
                account.format, account.lacks = known.name, known.lacks
                records = _records(stream, known, reading)
                yield from _in_whole_file(records, input) if input.part else records
            elif stream.failures:
                yield from _end(stream, None, reading)
            if stream.is_shorter_than(input.part.end if input.part else input.size or 0):
                account.error = f"{input.name}: became shorter while it was read; read it again when nobody changes it"
    except SourceError as error:
        account.error = str(error)
        raise


def _detect(stream: DumpStream, source: Input, account: FileAccount) -> Format | None:
    head = stream.head(HEAD_BYTES)
    known = detect_format(head)
    if known is not None:
        return known
    if not head.strip():
        account.note = "empty"
    elif source.explicit and source.path is not None and is_own_output(source.path):
        raise SourceError(f"{source.name}: {WHAT_READS_IT}")
    elif source.explicit:
        names = ", ".join(known.name for known in FORMATS)
        raise SourceError(f"{source.name}: no known format; known are {names}, each plain or with gzip or zstd")
    else:
        account.note = UNKNOWN_FORMAT
    return None


def _records(stream: DumpStream, known: Format, reading: Reading) -> Iterator[Record]:
    account = reading.account
    last: Record | None = None
    for last in known.reads(io.BufferedReader(stream, HEAD_BYTES), reading):
        if isinstance(last, Span):
            account.spans += 1
        elif isinstance(last, Quarantined):
            account.partly_damaged += last.partial
            account.damaged += not last.partial
        elif last.span_id:  # those without are in the account
            account.log_records += 1
        yield last
    yield from _end(stream, last, reading)


def _in_whole_file(records: Iterator[Record], source: Input) -> Iterator[Record]:
    """The records of a part, their damages with the line numbers that they have in the whole file."""
    first: int | None = None
    for record in records:
        if not isinstance(record, Quarantined) or source.part is None or source.path is None:
            yield record
            continue
        if first is None:  # damages are rare, and counting lines takes time
            first = lines_before(source.path, source.part.start)
        yield _behind(record, source.name, first)


def _behind(damage: Quarantined, name: str, lines: int) -> Quarantined:
    number, slash, rest = damage.path.removeprefix(f"{name}:").partition(" / ")
    if not damage.path.startswith(f"{name}:") or not number.isdecimal():
        return damage
    return msgspec.structs.replace(damage, path=f"{name}:{int(number) + lines}{slash}{rest}")


def _end(stream: DumpStream, last: Record | None, reading: Reading) -> Iterator[Record]:
    """Each piece of the stream that cannot be read as Quarantined, unless `last` says that its end is torn."""
    is_told = isinstance(last, Quarantined) and last.reason == "torn"
    for reason, detail, place in stream.failures:
        if place or reason != "torn" or not is_told:
            reading.account.damaged += 1
            yield Refused(reason, detail=detail).damage(f"{reading.path}:{place}" if place else reading.path)
