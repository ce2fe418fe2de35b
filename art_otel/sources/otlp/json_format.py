r"""OTLP JSON: an ExportTraceServiceRequest or ExportLogsServiceRequest a line, traces and logs possibly mixed.

This is what a collector's file exporter and the SDK's JSON file exporter write. Requests that go over several lines
and JSON arrays of requests are read too, amid lines or alone; so are the answers of the query APIs of Tempo
(`{"batches": […]}`, `{"trace": {"resourceSpans": …}}`) and Jaeger v3 (`{"result": {"resourceSpans": …}}`).

Invariant: a document that decodes at once takes the fast way. Of any other each record is converted by itself, and what
is no JSON costs that document, but for the whole records before the tear of one that ends too early.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/,
https://grafana.com/docs/tempo/latest/api_docs/, https://www.jaegertracing.io/docs/latest/apis/
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET

from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.documents import Document, read_documents, read_documents_of
from art_otel.sources.json_text.lenient import parse_values
from art_otel.sources.json_text.torn import split_torn
from art_otel.sources.json_text.values import is_object, items_of, objects_in_head
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.checksums import is_altered
from art_otel.sources.otlp.json_records import JsonSpanBuilder
from art_otel.sources.otlp.json_recovery import HOLDERS, ids_of, recover_request
from art_otel.sources.refusals import Refused, too_long
from art_otel.spans import Value

_Requests: TypeAlias = otlp.Request | list[otlp.Request]
_SIGNALS: Final = ("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles", "batches")
_ENVELOPES: Final = ("trace", "result")
_EMPTY_BYTES: Final = 1 << 10
_BEGINNING: Final = re.compile(r'\{\s*+"resource(?:Spans|Logs|Metrics|Profiles)"\s*+:')
_CUT: Final = re.compile(rb"\n(?=(?:\xef\xbb\xbf|\x1e)?" + _BEGINNING.pattern.encode() + rb")")
_decode: Final[Callable[[bytes | memoryview], _Requests]] = msgspec.json.Decoder(_Requests, strict=False).decode


def _detects(head: bytes) -> bool:
    return any(_is_request(value) for value in objects_in_head(head))


def _is_request(value: Value) -> bool:
    return is_object(value) and (
        any(isinstance(value.get(name), list) for name in _SIGNALS)
        or any(_is_request(value.get(name)) for name in _ENVELOPES)
    )


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return _records(read_documents(stream, reading.limits.max_message_bytes, _decode), reading)


FORMAT: Final = Format(name="otlp-json", detects=_detects, reads=_reads, cuts=_CUT)


def read_lines_of(lines: Iterable[bytes], reading: Reading) -> Iterator[Record]:
    """Read every record of lines that are in memory."""
    documents = (
        document._replace(line=number)
        for number, line in enumerate(lines, 1)
        for document in read_documents_of(line, _decode)
    )
    return _records(documents, reading)


def _records(documents: Iterable[Document[_Requests]], reading: Reading) -> Iterator[Record]:
    builder = JsonSpanBuilder(reading)
    for document in documents:
        location = f"{reading.path}:{document.line}"
        if document.data is None:
            yield too_long(location)
            continue
        reading.stats.replaced += document.replaced
        if document.value is UNSET:
            yield from _read_leniently(document, builder)
            continue
        requests = document.value if isinstance(document.value, list) else [document.value]
        reading.stats.altered += is_altered(document.data)
        is_empty = b":" not in bytes(document.data[:_EMPTY_BYTES])
        for request in requests:
            yield from _read(request, location, builder, is_empty=is_empty)


def _read_leniently(document: Document[_Requests], builder: JsonSpanBuilder) -> Iterator[Record]:
    """Read every record of a document that does not decode at once."""
    for piece in parse_values(bytes(document.data or b""), _BEGINNING):
        location = f"{builder.reading.path}:{document.line + piece.lines}"
        if not isinstance(piece.value, Refused):
            yield from _recover(piece.value, location, builder)
        elif piece.value.reason == "torn":
            whole, torn = split_torn(piece.text, HOLDERS)
            yield from _recover(whole, location, builder)
            yield piece.value.quarantine(location, ids=ids_of(torn, builder))
        else:
            yield piece.value.quarantine(location)


def _recover(value: Value, location: str, builder: JsonSpanBuilder) -> Iterator[Record]:
    for item in items_of(value):
        try:
            request, quarantined = recover_request(item, location, builder)
        except Refused as problem:
            yield problem.quarantine(location)
        else:
            yield from _read(request, location, builder, is_empty=not item)
            yield from quarantined


def _read(request: otlp.Request, location: str, builder: JsonSpanBuilder, *, is_empty: bool) -> Iterator[Record]:
    if not request.is_otlp and not is_empty:
        yield Refused("not OTLP", detail="it has none of resourceSpans, resourceLogs").quarantine(location)
    for part in request.parts:
        builder.reading.stats.other_signals += part.has_other_signal
        yield from builder.traces(part.resource_spans or part.batches or None, location)
        yield from builder.logs(part.resource_logs or None, location)
