r"""OTLP JSON: an ExportTraceServiceRequest or ExportLogsServiceRequest a line, traces and logs possibly mixed.

This is what a collector's file exporter and the SDK's JSON file exporter write. A pretty-printed request and a JSON
array of requests are read too, whole and within `Limits.max_document_bytes`; so are the answers of the query APIs of
Tempo (`{"batches": […]}`, `{"trace": {"resourceSpans": …}}`) and Jaeger v3 (`{"result": {"resourceSpans": …}}`).

Invariant: a line that decodes at once takes the fast way; any other line goes to `otlp_json_salvage`, which reads its
records one by one.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/,
https://grafana.com/docs/tempo/latest/api_docs/, https://www.jaegertracing.io/docs/latest/apis/
"""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from art_otel.sources import otlp_messages as otlp
from art_otel.sources.bounded_read import read_up_to
from art_otel.sources.checksums import distrusted, is_altered
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_faults import is_utf8
from art_otel.sources.large_values import without_large_values
from art_otel.sources.limits import LimitName, advice
from art_otel.sources.lines import Lines
from art_otel.sources.otlp_json_records import JsonRecords
from art_otel.sources.refusals import Refused

_SIGNAL: Final = re.compile(rb'"resource(?:Spans|Logs|Metrics|Profiles)"\s*:')
_REQUEST_LINE: Final = re.compile(rb'^\{"resource(?:Spans|Logs|Metrics|Profiles)"\s*:', re.MULTILINE)
_ARRAY_MARKS: Final = (b"[", b"]", b",")
_MAX_MARK_BYTES: Final = 80
_BEGINNINGS: Final = (
    *(b'{"resource' + signal + b'"' for signal in (b"Spans", b"Logs", b"Metrics", b"Profiles")),
    b'{"batches":[{',
    b'{"trace":{"resourceSpans"',
    b'{"result":{"resourceSpans"',
)
_TEMPO: Final = re.compile(rb'\[?\s*+\{\s*+"batches"\s*+:\s*+\[')
_OLD_NAMES: Final = (
    (b'"instrumentationLibrarySpans"', b'"scopeSpans"'),
    (b'"instrumentationLibraryLogs"', b'"scopeLogs"'),
    (b'"instrumentationLibrary"', b'"scope"'),
)
_BOM: Final = codecs.BOM_UTF8
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_REQUESTS: Final[msgspec.json.Decoder[otlp.Request | list[otlp.Request]]] = msgspec.json.Decoder(
    otlp.Request | list[otlp.Request], strict=False
)


def _detects(head: bytes) -> bool:
    text = head.removeprefix(_BOM).lstrip()
    torn_at_once = bool(text) and any(beginning.startswith(text) for beginning in _BEGINNINGS)
    return torn_at_once or _SIGNAL.search(head) is not None or _TEMPO.match(text) is not None


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = JsonRecords(reading)
    if not reading.is_part and _is_document(stream.peek()):
        yield from _read_document(stream, records)
        return
    lines = Lines(stream, reading.limits.max_message_bytes)
    for number, line in lines:
        place = f"{reading.path}:{number}"
        if line is None:
            yield _too_long("line", "max_message_bytes").damage(place)
        elif len(line) > _MAX_MARK_BYTES or line.strip() not in _ARRAY_MARKS:  # an array may have a request a line
            # Joined files have a byte order mark in any line.
            yield from read_line(line.removeprefix(_BOM), place, records, is_ascii=lines.is_ascii)


FORMAT: Final = Format(name="otlp-json", detects=_detects, reads=_reads, lines=lambda head: not _is_document(head))


def _is_document(head: bytes) -> bool:
    """Whether the first line only opens what the next lines go on with, and none of those begins a request."""
    first, newline, rest = head.removeprefix(_BOM).lstrip().partition(b"\n")
    opens = first[:1] in (b"{", b"[") and first.rstrip()[-1:] in (b"{", b"[", b",", b":")
    return bool(newline) and opens and _REQUEST_LINE.search(rest) is None


def _read_document(stream: io.BufferedReader, records: JsonRecords) -> Iterator[Record]:
    reading = records.reading
    document = read_up_to(stream, reading.limits.max_document_bytes + 1)
    if len(document) > reading.limits.max_document_bytes:
        yield _too_long("JSON document", "max_document_bytes").damage(reading.path)
        return
    yield from read_line(document.removeprefix(_BOM), reading.path, records)


def _too_long(what: str, limit: LimitName) -> Refused:
    return Refused("over a limit", detail=f"the {what} is longer than the limit; {advice(limit)}")


def read_line(line: bytes, place: str, records: JsonRecords, *, is_ascii: bool = False) -> Iterable[Record]:
    """Every record of one line (or document). `place` names it; `is_ascii` says that somebody knows that it is."""
    found = _read(line, place, records, is_ascii=is_ascii)
    if is_altered(line):
        return distrusted(found, place)
    return without_large_values(found, len(line), place, records.reading.limits)


def read_lines_of(lines: Iterable[bytes], reading: Reading) -> Iterator[Record]:
    """Every record of lines that are in memory."""
    records = JsonRecords(reading)
    for number, line in enumerate(lines, 1):
        yield from read_line(line, f"{reading.path}:{number}", records)


def _read(line: bytes, place: str, records: JsonRecords, *, is_ascii: bool = False) -> Iterator[Record]:
    try:
        decoded = _REQUESTS.decode(line)
        sound = is_ascii or is_utf8(line)
    except _UNDECODABLE:
        decoded, sound = [], False
    if not sound:
        yield from _salvage_line(_modernise(line), place, records)
        return
    whole = decoded if isinstance(decoded, list) else [decoded]
    requests = [part for request in whole for part in request.parts]
    if any(request.is_old for request in requests) and (modern := _modernise(line)) != line:
        yield from _read(modern, place, records)
        return
    records.reading.account.other_signals += sum(request.has_other_signal for request in requests)
    if b":" in line and not any(request.is_otlp for request in requests):
        yield Refused("not OTLP", detail="it has none of resourceSpans, resourceLogs").damage(place)
    for request in requests:
        yield from records.traces(request.resource_spans or request.batches or None, place)
        yield from records.logs(request.resource_logs or None, place)


def _modernise(line: bytes) -> bytes:
    """The line with the names that scopes had before OTLP 0.15; inside a text the quotes would be escaped."""
    for old, new in _OLD_NAMES if b'"instrumentationLibrary' in line else ():
        line = line.replace(old, new)
    return line


def _salvage_line(line: bytes, place: str, records: JsonRecords) -> Iterator[Record]:
    from art_otel.sources.otlp_json_salvage import salvage_request  # noqa: PLC0415 # most dumps are sound
    from art_otel.sources.otlp_json_scan import BLANKS, split_requests  # noqa: PLC0415 # as above

    pieces = split_requests(line)
    if len(pieces) == 1 and len(pieces[0]) >= len(line.strip(BLANKS)):
        yield from salvage_request(pieces[0], place, records)
        return
    for piece in pieces:
        yield from _read(piece, place, records)
