r"""OTLP JSON: an ExportTraceServiceRequest or ExportLogsServiceRequest a line, traces and logs possibly mixed.

This is what a collector's file exporter and the SDK's JSON file exporter write. Requests that go over several lines
and JSON arrays of requests are read too, amid lines or alone, each whole and within `Limits.max_document_bytes`; so are
the answers of the query APIs of Tempo (`{"batches": […]}`, `{"trace": {"resourceSpans": …}}`) and Jaeger v3
(`{"result": {"resourceSpans": …}}`).

Invariant: a line that decodes at once takes the fast way. What begins with a bracket but is no JSON goes on up to where
the next request begins; if that does not decode either, `otlp_json_salvage` reads its records one by one. So what a
line gives depends on no line before the request that it stands in.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/,
https://grafana.com/docs/tempo/latest/api_docs/, https://www.jaegertracing.io/docs/latest/apis/
"""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from art_otel.sources.files.lines import Lines
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.faults import is_utf8, syntax_problem
from art_otel.sources.json_text.frame import BLANKS
from art_otel.sources.large_values import without_large_values
from art_otel.sources.limits import LimitName, advice
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.checksums import distrusted, is_altered
from art_otel.sources.otlp.json_records import JsonRecords
from art_otel.sources.otlp.json_requests import BETWEEN, CUT, REQUEST, split_requests
from art_otel.sources.refusals import Refused

_SIGNAL: Final = re.compile(rb'"resource(?:Spans|Logs|Metrics|Profiles)"\s*:')
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
    text = head.removeprefix(_BOM).lstrip(BLANKS)
    torn_at_once = bool(text) and any(beginning.startswith(text) for beginning in _BEGINNINGS)
    return torn_at_once or _SIGNAL.search(head) is not None or _TEMPO.match(text) is not None


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = JsonRecords(reading)
    lines = Lines(stream, reading.limits.max_message_bytes)
    for number, line in lines.views():
        place = f"{reading.path}:{number}"
        if line is None:
            yield _too_long("line", "max_message_bytes").damage(place)
        elif len(line) > _MAX_MARK_BYTES or bytes(line).strip(BETWEEN):  # an array may have a request a line
            yield from _read_from(lines, line, place, records)


FORMAT: Final = Format(name="otlp-json", detects=_detects, reads=_reads, cuts=CUT)


def _read_from(lines: Lines, view: memoryview, place: str, records: JsonRecords) -> Iterable[Record]:
    """Every record of a line, or of the document that it begins."""
    is_ascii = lines.is_ascii
    if (decoded := _decode(view)) is not None:
        return _read_decoded(decoded, view, place, records, is_ascii=is_ascii)
    line = bytes(view).removeprefix(_BOM)  # joined files have a byte order mark in any line
    alone = line.strip(BETWEEN)  # in a list of requests marks stand around it
    if (decoded := _decode(alone)) is not None:
        return _read_decoded(decoded, alone, place, records, is_ascii=is_ascii)
    if not alone.startswith(b"{") or syntax_problem(line) is None:
        return _read_decoded(None, line, place, records)
    limit = records.reading.limits.max_document_bytes
    document = lines.up_to(REQUEST, line, limit)
    if document is None:
        return (_too_long("JSON document", "max_document_bytes").damage(place),)
    return read_line(document.strip(BETWEEN), place, records)


def _too_long(what: str, limit: LimitName) -> Refused:
    return Refused("over a limit", detail=f"the {what} is longer than the limit; {advice(limit)}")


def read_line(line: bytes, place: str, records: JsonRecords) -> Iterable[Record]:
    """Every record of one line (or document). `place` names it."""
    return _read_decoded(_decode(line), line, place, records)


def read_lines_of(lines: Iterable[bytes], reading: Reading) -> Iterator[Record]:
    """Every record of lines that are in memory."""
    records = JsonRecords(reading)
    for number, line in enumerate(lines, 1):
        yield from read_line(line, f"{reading.path}:{number}", records)


def _decode(line: bytes | memoryview) -> list[otlp.Request] | None:
    """The requests of a line; None when it does not decode."""
    try:
        decoded = _REQUESTS.decode(line)
    except _UNDECODABLE:
        return None
    return decoded if isinstance(decoded, list) else [decoded]


def _read_decoded(
    decoded: list[otlp.Request] | None,
    line: bytes | memoryview,
    place: str,
    records: JsonRecords,
    *,
    is_ascii: bool = False,
) -> Iterable[Record]:
    """Every record of a line that was decoded. `is_ascii` says that somebody knows that it is."""
    found = _read(decoded, line, place, records, is_ascii=is_ascii)
    if is_altered(line):
        if not (is_utf8(line) and syntax_problem(line) is None):
            return distrusted(found, place)
        records.reading.account.altered += 1
    return without_large_values(found, len(line), place, records.reading.limits)


def _read(
    decoded: list[otlp.Request] | None,
    line: bytes | memoryview,
    place: str,
    records: JsonRecords,
    *,
    is_ascii: bool = False,
) -> Iterator[Record]:
    if decoded is None or not (is_ascii or is_utf8(line)):
        yield from _salvage_line(_modernise(bytes(line)), place, records)
        return
    requests = [part for request in decoded for part in request.parts]
    if any(request.is_old for request in requests) and (modern := _modernise(bytes(line))) != line:
        yield from _read(_decode(modern), modern, place, records)
        return
    records.reading.account.other_signals += sum(request.has_other_signal for request in requests)
    if not any(request.is_otlp for request in requests) and b":" in bytes(line):
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
    from art_otel.sources.otlp.json_salvage import salvage_request  # noqa: PLC0415 # most dumps are sound

    pieces = split_requests(line)
    if len(pieces) == 1 and len(pieces[0]) >= len(line.strip(BLANKS)):
        yield from salvage_request(pieces[0], place, records)
        return
    for piece in pieces:
        yield from _read(_decode(piece), piece, place, records)
