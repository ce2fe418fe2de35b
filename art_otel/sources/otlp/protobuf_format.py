"""OTLP protobuf: one request a file, or requests with a 4-byte big-endian length before each, or answers of Tempo.

The first is what object-store exporters write, the second a collector's file exporter with `format: proto`. Traces
and logs are told apart on the wire. A request without a length before it is read one ResourceSpans at a time, because
that is what protobuf's concatenation of messages means; each counts as a message. So is an answer of Tempo's v2 API,
which has a whole request in its field 1 and says more about it in others.

Invariant: a message that is broken or over the limit costs no other, unless nothing says where the next one begins.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding, and for Tempo's answers
`TraceByIDResponse` in its `pkg/tempopb/tempo.proto`.
"""

import io
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from art_otel.sources.format import NO_IDS, DroppedFields, Format, Ids, Reading, Record, Refused, Site, advice
from art_otel.sources.otlp import records as otlp
from art_otel.sources.otlp.records import Batch, SpanBuilder, finite, scope_of
from art_otel.spans import Quarantined, QuarantineReason, Value

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

Signal: TypeAlias = Literal["traces", "logs", "other"]
LENGTH: Final = 2
FIRST: Final = 1
"""In every container: the resource or the scope; in a request: a batch."""

SECOND: Final = 2
"""In a batch: the records of one scope; in those: a record."""

_VARINT: Final = 0
_FIXED64: Final = 1
_FIXED32: Final = 5
_MAX_VARINT_BYTES: Final = 10
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_ONLY_SPANS: Final = frozenset({(6, _VARINT), (7, _FIXED64), (8, _FIXED64)})  # kind, start, end
_ONLY_LOGS: Final = frozenset({(1, _FIXED64), (11, _FIXED64), (2, _VARINT), (8, _FIXED32)})  # times, severity, flags
_METRIC_DATA: Final = frozenset({(5, LENGTH), (7, LENGTH), (9, LENGTH), (10, LENGTH), (11, LENGTH)})
_ID_FIELDS: Final = {"traces": (1, 2), "logs": (9, 10), "other": (1, 2)}
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_Name: TypeAlias = Literal["TracesData", "LogsData", "Span", "LogRecord", "Resource", "InstrumentationScope"]
_PREFIX_BYTES: Final = 4
_TAG: Final = b"\x0a"
_ANSWER_TAGS: Final = _TAG + b"\x12\x18\x22"
"""The trace, and Tempo's metrics, status and message."""

_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES: Final = 256
"""A request has tags and lengths that are no text among its first bytes; blank lines before a text have none."""

_SKIP_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 64 << 20
_MAX_SIZE_BYTES: Final = 10
_Frame: TypeAlias = tuple[bytes, Refused | None]
"""A message as far as it could be read, and what was wrong with its frame."""


def _detects(head: bytes) -> bool:
    return _is_request(head) or _is_framed(head)


def _is_framed(head: bytes) -> bool:
    """Whether any of the messages that lengths lead to looks like a request."""
    position = 0
    while position + _PREFIX_BYTES < len(head):
        size = int.from_bytes(head[position : position + _PREFIX_BYTES])
        position += _PREFIX_BYTES
        if _is_request(head[position : position + size]):
            return True
        position += size
    return False


def _is_request(head: bytes) -> bool:
    """Whether it begins with field 1 that holds a resource (1), scopes (2) or a schema URL (3), as far as it goes."""
    header = read_varint(head, 1, len(head))
    if not head.startswith(_TAG) or not _NO_TEXT.search(head, 0, _TEXT_BYTES) or header is None:
        return False
    size, start = header
    tags = [field[:2] for field in read_fields(head, start, min(start + size, len(head)))]
    return bool(tags) and all(number in (1, 2, 3, 1000) and wire == LENGTH for number, wire in tags)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    builder = ProtobufSpanBuilder(reading)
    head = stream.peek()
    read_frames = partial(_bare_frames, is_answer=Split(head).is_answer) if _is_request(head) else _prefixed_frames
    number = 0
    for message, problem in read_frames(stream, reading.limits.max_message_bytes):
        number += 1  # noqa: SIM113 # enumerate() would hold the message
        location = f"{reading.path}:message {number}"
        if problem is None:
            yield from builder.read(message, location)
        else:
            yield from builder.read_split(Split(message), location, problem)


FORMAT: Final = Format(name="otlp-protobuf", detects=_detects, reads=_reads)


def read_protobuf(request: bytes, reading: Reading) -> Iterable[Record]:
    """Read every record of one request that is in memory."""
    return ProtobufSpanBuilder(reading).read(request, reading.path)


def _prefixed_frames(stream: io.BufferedReader, limit: int) -> Iterator[_Frame]:
    """Read messages with a 4-byte length before each."""
    while prefix := stream.read(_PREFIX_BYTES):
        if len(prefix) < _PREFIX_BYTES:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        yield _read_body(stream, b"", int.from_bytes(prefix), limit)


def _bare_frames(stream: io.BufferedReader, limit: int, *, is_answer: bool) -> Iterator[_Frame]:
    """Read what stands in field 1: a batch, which with its tag and length is a request; in an answer, a request."""
    tags = _ANSWER_TAGS if is_answer else _TAG
    while tag := stream.read(1):
        if tag not in tags:
            _skip(stream, sys.maxsize)  # nothing says where the next message begins
            yield b"", Refused("not OTLP", detail="no request begins here; the rest of the file cannot be read")
            return
        size, header = _read_size(stream)
        if size is None:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        if tag == _TAG:
            yield _read_body(stream, b"" if is_answer else tag + header, size, limit)
        elif tag[0] & 7 == LENGTH:
            _skip(stream, size)


def _read_size(stream: io.BufferedReader) -> tuple[int | None, bytes]:
    """Read a length, None where the file ends inside it, and its bytes."""
    header = b""
    while len(header) < _MAX_SIZE_BYTES and (byte := stream.read(1)):
        header += byte
        if byte < b"\x80":
            break
    read = read_varint(header, 0, len(header))
    return read and read[0], header


def _read_body(stream: io.BufferedReader, header: bytes, size: int, limit: int) -> _Frame:
    if size > limit:
        _skip(stream, size)
        return b"", Refused("over a limit", detail=f"a message of {size} bytes; {advice('max_message_bytes')}")
    body = b"".join(_read_pieces(stream, size))
    torn = Refused("torn", detail=f"the file ends {size - len(body)} bytes too early") if len(body) < size else None
    return header + body, torn


def _read_pieces(stream: io.BufferedReader, size: int, piece_bytes: int = _PIECE_BYTES) -> Iterator[bytes]:
    """Read the next bytes, which take no more memory than there are: a length may be a lie."""
    while size > 0 and (piece := stream.read(min(size, piece_bytes))):
        size -= len(piece)
        yield piece


def _skip(stream: io.BufferedReader, size: int) -> None:
    for _ in _read_pieces(stream, size, _SKIP_BYTES):
        pass


class Field(NamedTuple):
    """One field, whose value is `data[start:end]`. It is not `whole` where its message ends or breaks inside it."""

    number: int
    wire_type: int
    start: int
    end: int
    whole: bool = True


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int] | None:
    """Read the number and where it ends; None where there is none."""
    value = 0
    for count, byte in enumerate(data[position : min(end, position + _MAX_VARINT_BYTES)]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    return None


def read_fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """Find the fields of the message `data[start:end]`; the last is of number 0 and not whole where none follows."""
    while start < end:
        tag, position = read_varint(data, start, end) or (0, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == LENGTH:
            size, position = read_varint(data, position, end) or (end, end)
            stop = position + size
        elif wire_type == _VARINT:
            stop = (read_varint(data, position, end) or (0, end + 1))[1]
        else:
            stop = position + _SIZES.get(wire_type, end)
        if not number or (wire_type not in _SIZES and wire_type not in (LENGTH, _VARINT)):
            yield Field(0, wire_type, start, end, whole=False)
            return
        yield Field(number, wire_type, position, min(stop, end), stop <= end)
        start = stop


class Split:
    """One request. `is_broken` says whether some length or tag in what was walked so far cannot be followed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root = Field(0, LENGTH, 0, len(data))
        self.is_broken = False

    def inside(self, container: Field, number: int) -> Iterator[Field]:
        """Find the messages in field `number` of a container."""
        for field in read_fields(self.data, container.start, container.end):
            self.is_broken = self.is_broken or not field.whole
            if field.number == number and field.wire_type == LENGTH:
                yield field

    def records(self) -> Iterator[Field]:
        """Find the spans or log records of all batches."""
        for batch in self.inside(self.root, FIRST):
            for scoped in self.inside(batch, SECOND):
                yield from self.inside(scoped, SECOND)

    def tags(self, message: Field) -> set[tuple[int, int]]:
        """Collect the numbers and wire types of the fields of a message."""
        return {field[:2] for field in read_fields(self.data, message.start, message.end)}

    @property
    def signal(self) -> Signal | None:
        """What it holds, by the wire types of its records' fields; None when it holds no batch.

        A Span's field 1 is its trace id (bytes), a LogRecord's a time (fixed64), a Metric's its name.
        """
        for record in self.records():
            tags = self.tags(record)
            if tags & _ONLY_SPANS:
                return "traces"
            if tags & _ONLY_LOGS:
                return "logs"
            if tags & _METRIC_DATA and self.ids(record, "traces") == (None, None):
                return "other"
        return "traces" if any(self.inside(self.root, FIRST)) else None

    @property
    def is_answer(self) -> bool:
        """Whether field 1 holds a whole request, as in Tempo's answers, and no batch.

        A batch has its resource where a request has a batch, and in a resource field 2 is a number.
        """
        first = next(self.inside(self.root, FIRST), None)
        inner = self.inside(first, FIRST) if first else ()
        return any((SECOND, LENGTH) in self.tags(message) for message in inner)

    def ids(self, record: Field, signal: Signal) -> Ids:
        """Read the ids of a record that cannot be decoded, as far as they can be read."""
        values: dict[int, bytes] = {}
        for field in read_fields(self.data, record.start, record.end):
            if field.wire_type == LENGTH and field.end - field.start in (_TRACE_BYTES, _SPAN_BYTES):
                values[field.number] = self.data[field.start : field.end]
        trace, span = (values.get(number, b"") for number in _ID_FIELDS[signal])
        return (
            trace.hex() if len(trace) == _TRACE_BYTES and any(trace) else None,
            span.hex() if len(span) == _SPAN_BYTES and any(span) else None,
        )


class _MessageType(Protocol):
    def FromString(self, data: bytes, /) -> object: ...  # noqa: N802 # protobuf's name


class ProtobufSpanBuilder(SpanBuilder):
    """Builds records of requests: decoded whole, and of one that does not decode record by record.

    A record that is sound alone is kept, a bad one is quarantined, and what no record explains (a torn tail, rubbish)
    is one Quarantined of kind "unknown". Protobuf itself allows no deeper nesting than Python does.
    """

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._types, self._error = _message_types()

    def read(self, data: bytes, location: str) -> Iterable[Record]:
        """Read every record of one request, which `location` names."""
        try:
            batches = self._traces(data)
        except Refused:
            batches = None
        if batches and _begins_with_span(batches):  # as most requests do, and to split one first costs a multiple
            return self.traces(batches, location)
        split = Split(data)
        if split.is_answer:
            problem = Refused("not OTLP", detail="an answer of Tempo amid requests; give it in a file of its own")
            return (problem.quarantine(location),)
        if split.signal == "other":
            self.reading.stats.other_signals += 1
            return ()
        try:
            if split.signal == "logs":
                return self.logs(cast("otlp.Request", self._decode(data, "LogsData")).resource_logs or None, location)
            if split.signal == "traces" or not data:
                return self.traces(self._traces(data), location)
        except Refused:
            pass
        return self.read_split(split, location)

    def _traces(self, data: bytes) -> list[otlp.ResourceSpans]:
        return cast("list[otlp.ResourceSpans]", cast("otlp.Request", self._decode(data, "TracesData")).resource_spans)

    def read_split(self, split: Split, location: str, problem: Refused | None = None) -> Iterator[Record]:
        """Read every record of a request that does not decode, each by itself; `problem` says why it has no end."""
        signal, torn_ids = split.signal, NO_IDS
        if signal == "other":
            return  # a torn request of metrics costs nothing
        for batch in split.inside(split.root, FIRST):
            message = yield from self._shared(split, batch, "Resource", location)
            resource, quarantined = self.resource(cast("otlp.Resource | None", message), location)
            yield from quarantined
            for scoped in split.inside(batch, SECOND):
                message = yield from self._shared(split, scoped, "InstrumentationScope", location)
                shared = Batch(location=location, resource=resource, scope=scope_of(cast("otlp.Scope | None", message)))
                for record in split.inside(scoped, SECOND):
                    if record.whole:
                        yield from self._record(split, record, signal or "traces", shared)
                    else:
                        torn_ids = split.ids(record, signal or "traces")
        if problem is None and (split.is_broken or signal is None):
            problem = Refused("not OTLP", detail="no request, or a length goes beyond its message")
        if problem is not None:
            yield problem.quarantine(location, ids=torn_ids)

    def _shared(
        self, split: Split, container: Field, name: _Name, location: str
    ) -> Generator[Quarantined, None, object]:
        """Decode what records share; when it is bad it is a partial Quarantined and its records do without it."""
        field = next((field for field in split.inside(container, FIRST) if field.whole), None)
        try:
            return field and self._decode(split.data[field.start : field.end], name)
        except Refused as problem:
            yield problem.quarantine(location, partial=True)
            return None

    def _record(self, split: Split, record: Field, signal: Signal, batch: Batch) -> Iterator[Record]:
        data = split.data[record.start : record.end]
        try:
            if signal == "logs":
                yield from self.log_record(cast("otlp.LogRecord", self._decode(data, "LogRecord")), batch)
            else:
                yield from self.span(cast("otlp.Span", self._decode(data, "Span")), batch)
        except Refused as problem:
            yield problem.quarantine(batch.location, "log" if signal == "logs" else "span", split.ids(record, signal))

    def _decode(self, data: bytes, name: _Name) -> object:
        """Decode one message. Raises Refused."""
        try:
            return self._types[name].FromString(data)
        except self._error as error:
            raise Refused(_reason(str(error)), detail=str(error)) from error

    def hex(self, raw: object, digits: int) -> str:  # noqa: ARG002 # their length tells
        """Read an id, as `SpanBuilder.hex` asks."""
        return raw.hex() if isinstance(raw, bytes) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `SpanBuilder.attributes` asks."""
        messages = cast("Iterable[KeyValue]", pairs or ())
        flat: dict[str, Value] = {}
        for pair in messages:
            value = pair.value
            flat[pair.key] = value.string_value or self._value(value, (owner, pair.key), dropped)
        return flat  # most are text, so no call for those

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `SpanBuilder.value` asks."""
        return self._value(cast("AnyValue", value), site, dropped)

    def _value(self, value: "AnyValue", site: Site, dropped: DroppedFields) -> Value:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return value.string_value
        if kind == "int_value":
            return value.int_value
        if kind == "double_value":
            return finite(value.double_value, site, dropped)
        if kind == "bool_value":
            return value.bool_value
        if kind == "bytes_value":
            return value.bytes_value
        if kind == "array_value":
            return self._items(value.array_value, site, dropped)
        if kind == "kvlist_value":
            return {pair.key: self._value(pair.value, site, dropped) for pair in value.kvlist_value.values}
        return None

    def _items(self, array: "ArrayValue", site: Site, dropped: DroppedFields) -> list[Value]:
        numbers: list[Value] = [item.int_value for item in array.values]
        if 0 not in numbers:  # so each is a whole number, as most token ids are
            return numbers
        return [self._value(item, site, dropped) for item in array.values]


def _begins_with_span(batches: Sequence[otlp.ResourceSpans]) -> bool:
    """Whether the first record is a span that has started: logs and metrics decode too, but have no time there."""
    scoped = batches[0].scope_spans
    spans = scoped[0].spans if scoped else None
    return bool(spans and spans[0].start_time_unix_nano)


def _reason(problem: str) -> QuarantineReason:
    if "UTF-8" in problem:
        return "invalid UTF-8"
    return "nested too deep" if "MaxDepth" in problem else "bad field"


def _message_types() -> tuple[dict[_Name, _MessageType], type[Exception]]:
    """Import the message types, and the error that decoding raises; only protobuf dumps need them."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.common.v1 import common_pb2  # noqa: PLC0415
    from opentelemetry.proto.logs.v1 import logs_pb2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # it comes without
    from opentelemetry.proto.resource.v1 import resource_pb2  # noqa: PLC0415
    from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: PLC0415

    types = {
        "TracesData": trace_pb2.TracesData,
        "LogsData": logs_pb2.LogsData,
        "Span": trace_pb2.Span,
        "LogRecord": logs_pb2.LogRecord,
        "Resource": resource_pb2.Resource,
        "InstrumentationScope": common_pb2.InstrumentationScope,
    }
    return cast("dict[_Name, _MessageType]", types), cast("type[Exception]", DecodeError)
