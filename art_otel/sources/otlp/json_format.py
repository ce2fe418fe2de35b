r"""OTLP JSON: an ExportTraceServiceRequest or ExportLogsServiceRequest a line, traces and logs possibly mixed.

This is what a collector's file exporter and the SDK's JSON file exporter write. Requests that go over several lines
and JSON arrays of requests are read too, amid lines or alone; so are the answers of the query APIs of Tempo
(`{"batches": […]}`, `{"trace": {"resourceSpans": …}}`) and Jaeger v3 (`{"result": {"resourceSpans": …}}`).

Invariant: a line that decodes at once takes the fast way. Of any other text each record is converted by itself, and
what is no JSON costs that text, but for the whole records before the tear of one that ends too early.

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
from art_otel.sources.json_text.heads import items_of, objects_in_head
from art_otel.sources.json_text.kinds import is_object
from art_otel.sources.json_text.lenient import pieces
from art_otel.sources.json_text.texts import Text, Texts
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.checksums import is_altered
from art_otel.sources.otlp.json_records import JsonRecords
from art_otel.sources.otlp.json_requests import RECORDS, RequestConverter, ids_of
from art_otel.sources.refusals import Refused, too_long
from art_otel.spans import Value

_Requests: TypeAlias = otlp.Request | list[otlp.Request]
_SIGNALS: Final = ("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles", "batches")
_BEGINNING: Final = re.compile(r'\{\s*+"resource(?:Spans|Logs|Metrics|Profiles)"\s*+:')
_ENVELOPES: Final = ("trace", "result")
_EMPTY_BYTES: Final = 1 << 10
_CUT: Final = re.compile(rb'\n(?=(?:\xef\xbb\xbf|\x1e)?\{\s*+"resource(?:Spans|Logs|Metrics|Profiles)"\s*+:)')
_decode: Final[Callable[[bytes | memoryview], _Requests]] = msgspec.json.Decoder(_Requests, strict=False).decode


def _detects(head: bytes) -> bool:
    return any(_is_request(value) for value in objects_in_head(head))


def _is_request(value: Value) -> bool:
    return is_object(value) and (
        any(isinstance(value.get(name), list) for name in _SIGNALS)
        or any(_is_request(value.get(name)) for name in _ENVELOPES)
    )


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    return _records(Texts(stream, reading.limits.max_message_bytes, _decode), reading)


FORMAT: Final = Format(name="otlp-json", detects=_detects, reads=_reads, cuts=_CUT)


def read_lines_of(lines: Iterable[bytes], reading: Reading) -> Iterator[Record]:
    """Every record of lines that are in memory."""
    texts = (
        text._replace(line=number)
        for number, line in enumerate(lines, 1)
        for text in Texts(io.BytesIO(line), len(line), _decode)
    )
    return _records(texts, reading)


def _records(texts: Iterable[Text[_Requests]], reading: Reading) -> Iterator[Record]:
    records = JsonRecords(reading)
    for text in texts:
        place = f"{reading.path}:{text.line}"
        if text.data is None:
            yield too_long(place)
            continue
        reading.account.replaced += text.replaced
        if text.value is UNSET:
            yield from _broken(text, records)
            continue
        requests = text.value if isinstance(text.value, list) else [text.value]
        reading.account.altered += is_altered(text.data)
        yield from _read(requests, place, records, is_empty=b":" not in bytes(text.data[:_EMPTY_BYTES]))


def _broken(text: Text[_Requests], records: JsonRecords) -> Iterator[Record]:
    """Every record of a text that does not decode at once."""
    for piece in pieces(bytes(text.data or b""), _BEGINNING):
        place = f"{records.reading.path}:{text.line + piece.lines}"
        value, torn = (piece.value, None) if piece.problem is None else RECORDS.split(piece.value)
        for item in items_of(value) if value is not None else ():
            converter = RequestConverter(place, records)
            try:
                request = converter.convert(item)
            except Refused as problem:
                yield problem.damage(place)
                continue
            yield from _read([request], place, records, is_empty=not item or piece.problem is not None)
            yield from converter.quarantined
        if piece.problem is not None:
            yield piece.problem.damage(place, ids=ids_of(torn, records))


def _read(requests: list[otlp.Request], place: str, records: JsonRecords, *, is_empty: bool) -> Iterator[Record]:
    for whole in requests:
        if not whole.is_otlp and not is_empty:
            yield Refused("not OTLP", detail="it has none of resourceSpans, resourceLogs").damage(place)
        for request in whole.parts:
            records.reading.account.other_signals += request.has_other_signal
            yield from records.traces(request.resource_spans or request.batches or None, place)
            yield from records.logs(request.resource_logs or None, place)
