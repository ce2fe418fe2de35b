"""OTLP protobuf: one request per file, or many requests with a 4-byte length before each.

    bare       0a <size> <ResourceSpans> 0a <size> <ResourceSpans> …     object-store exporters
    prefixed   <4 bytes: size> <request> <4 bytes: size> <request> …     a collector's file exporter, `format: proto`

The collector writes big-endian lengths; an app's own receiver may write little-endian ones. Traces and logs are told
apart by the wire types of their fields. A bare file is read one ResourceSpans at a time (concatenated protobuf messages
are one message), so that memory does not need the whole file.

Invariant: a message that is broken or over the limit costs no other message, unless the begin of the next one is
unknown. The records of a message that does not decode are decoded one by one, so that only the bad ones are lost.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding
"""

import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from art_otel.sources.format import NO_IDS, DroppedFields, Ids, Reading, Record, Refused, Site, SourceFormat, advice
from art_otel.sources.otlp import records as otlp
from art_otel.sources.otlp.records import OtlpSpanBuilder, finite
from art_otel.spans import QuarantineReason, Value

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

    from art_otel.spans.span import Kind

AnySignal: TypeAlias = Literal["traces", "logs", "other"]
_LENGTH: Final = 2
_SHARED: Final = 1
"""The field number of a batch's resource, and of a ScopeSpans' scope."""

_RECORD_PATH: Final = (1, 2, 2)
"""The field numbers that lead to a record: request -> ResourceSpans -> ScopeSpans -> Span; likewise for logs."""

_VARINT: Final = 0
_FIXED64: Final = 1
_FIXED32: Final = 5
_MAX_VARINT_BYTES: Final = 10
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_ONLY_SPANS: Final = frozenset({(6, _VARINT), (7, _FIXED64), (8, _FIXED64)})  # kind, start, end
_ONLY_LOGS: Final = frozenset({(1, _FIXED64), (11, _FIXED64), (2, _VARINT), (8, _FIXED32)})  # times, severity, flags
_METRIC_DATA: Final = frozenset({(5, _LENGTH), (7, _LENGTH), (9, _LENGTH), (10, _LENGTH), (11, _LENGTH)})
_ID_FIELDS: Final = {"traces": (1, 2), "logs": (9, 10), "other": (1, 2)}
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_PREFIX_BYTES: Final = 4
_TAG: Final = b"\x0a"
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES: Final = 256
"""How many first bytes are searched for control characters: a request's tags and lengths have some, a text has none."""

_SKIP_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 64 << 20
_MAX_SIZE_BYTES: Final = 10
_Frame: TypeAlias = tuple[bytes, Refused | None]
"""A message as far as it could be read, and the problem of its frame, or None."""


def _detects(head: bytes) -> bool:
    return _is_request(head) or _is_framed(head)


def _byte_order(head: bytes) -> Literal["big", "little"]:
    """The byte order of the lengths: little-endian only if just this order leads to the next message or the end.

    18 e6 00 00 | a request of 58,904 bytes, …     417,726,464 bytes big-endian are more than there are
    """
    prefix = head[:_PREFIX_BYTES]
    end = _PREFIX_BYTES + int.from_bytes(prefix, "little")
    if _PREFIX_BYTES + int.from_bytes(prefix) <= len(head) or end > len(head):
        return "big"
    following = head[end + _PREFIX_BYTES :]
    is_next = not following or _is_request(following)
    return "little" if is_next and _is_request(head[_PREFIX_BYTES:end]) else "big"


def _is_framed(head: bytes) -> bool:
    """Whether the bytes look like messages with lengths, at least one of which looks like a request."""
    position, order = 0, _byte_order(head)
    while position + _PREFIX_BYTES < len(head):
        size = int.from_bytes(head[position : position + _PREFIX_BYTES], order)
        position += _PREFIX_BYTES
        if _is_request(head[position : position + size]):
            return True
        position += size
    return False


def _is_request(head: bytes) -> bool:
    """Whether the bytes begin with field 1, and this has only a resource (1), scopes (2) and a schema URL (3)."""
    header = read_varint(head, 1, len(head))
    if not head.startswith(_TAG) or not _NO_TEXT.search(head, 0, _TEXT_BYTES) or header is None:
        return False
    size, start = header
    tags = [field[:2] for field in _fields(head[start : start + size])]
    return bool(tags) and all(number in (1, 2, 3, 1000) and wire == _LENGTH for number, wire in tags)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    builder = ProtobufSpanBuilder(reading)
    head = stream.peek()
    order = _byte_order(head)
    read_frames = _bare_frames if _is_request(head) else partial(_prefixed_frames, order=order)
    number = 0
    for message, problem in read_frames(stream, reading.limits.max_message_bytes):
        number += 1  # noqa: SIM113 # enumerate() would keep the message, which may be large, in memory
        location = f"{reading.path}:message {number}"
        if problem is None:
            yield from builder.read(message, location)
        else:
            yield from builder.read_each(message, location, problem)


FORMAT: Final = SourceFormat(name="otlp-protobuf", detects=_detects, reads=_reads)


def read_protobuf(request: bytes, reading: Reading) -> Iterable[Record]:
    """Read every record of one request in memory."""
    return ProtobufSpanBuilder(reading).read(request, reading.path)


def _prefixed_frames(
    stream: io.BufferedReader, limit: int, *, order: Literal["big", "little"] = "big"
) -> Iterator[_Frame]:
    """Read messages with a 4-byte length before each."""
    while prefix := stream.read(_PREFIX_BYTES):
        if len(prefix) < _PREFIX_BYTES:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        yield _read_body(stream, b"", int.from_bytes(prefix, order), limit)


def _bare_frames(stream: io.BufferedReader, limit: int) -> Iterator[_Frame]:
    """Read the values of field 1: each is a batch, and a request together with its tag and length."""
    while tag := stream.read(1):
        if tag != _TAG:
            _skip(stream, sys.maxsize)  # the begin of the next message is unknown
            yield b"", Refused("not OTLP", detail="no request starts here; the rest of the file cannot be read")
            return
        size, header = _read_size(stream)
        if size is None:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        yield _read_body(stream, tag + header, size, limit)


def _read_size(stream: io.BufferedReader) -> tuple[int | None, bytes]:
    """Read a length (None if the file ends inside of it), and the bytes that encode it."""
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
    """Read the next `size` bytes in pieces: a wrong `size` must not allocate more memory than there is data."""
    while size > 0 and (piece := stream.read(min(size, piece_bytes))):
        size -= len(piece)
        yield piece


def _skip(stream: io.BufferedReader, size: int) -> None:
    for _ in _read_pieces(stream, size, _SKIP_BYTES):
        pass


class _Field(NamedTuple):
    """One field of a message, which begins at `begin`; its value is from `start` to `end`.

    It is not `whole` if the message ends, or breaks, inside of it.
    """

    number: int
    wire_type: int
    begin: int
    start: int
    end: int
    whole: bool = True


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int] | None:
    """Read a varint: the number and the position after it; None if there is no whole varint."""
    value = 0
    for count, byte in enumerate(data[position : min(end, position + _MAX_VARINT_BYTES)]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    return None


def _varint(number: int) -> bytes:
    """Encode a number as a varint."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _fields(data: bytes) -> Iterator[_Field]:
    """Find the fields of a message. Bytes that are no field give a last one with number 0 that is not whole."""
    begin, end = 0, len(data)
    while begin < end:
        tag, position = read_varint(data, begin, end) or (0, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _LENGTH:
            size, position = read_varint(data, position, end) or (end, end)
            stop = position + size
        elif wire_type == _VARINT:
            stop = (read_varint(data, position, end) or (0, end + 1))[1]
        else:
            stop = position + _SIZES.get(wire_type, end)
        if not number or (wire_type not in _SIZES and wire_type not in (_LENGTH, _VARINT)):
            yield _Field(0, wire_type, begin, begin, end, whole=False)
            return
        yield _Field(number, wire_type, begin, position, min(stop, end), stop <= end)
        begin = stop


class _WireRecord(NamedTuple):
    """An encoded span or log record, and a request that has only this record, with its resource and scope.

    A record that is not `whole`, perhaps without any `data`, marks a place where a length or a tag is broken.
    """

    request: bytes
    data: bytes
    whole: bool


def _wire_records(message: bytes, path: Sequence[int] = _RECORD_PATH) -> Iterator[_WireRecord]:
    """Split a request into its records. `path` has the field numbers that lead from the message to the records."""
    number, *below = path
    fields = [*_fields(message)]
    shared = b"".join(message[field.begin : field.end] for field in fields if field.whole and field.number != number)
    for field in fields:
        is_on_path = (field.number, field.wire_type) == (number, _LENGTH)
        value = message[field.start : field.end]
        if is_on_path and not below:
            records: Iterable[_WireRecord] = (_WireRecord(value, value, field.whole),)
        else:
            records = _wire_records(value, below) if is_on_path else ()
        for record in records:
            container = bytes([number << 3 | _LENGTH]) + _varint(len(record.request)) + record.request
            yield record._replace(request=shared + container)
        if not field.whole and (below or not is_on_path):
            yield _WireRecord(b"", b"", whole=False)


def _signal(request: bytes) -> AnySignal | None:
    """The signal of a request, by the wire types of its records' fields; None if it is no request.

    Field 1 of a Span is its trace id (bytes), of a LogRecord a time (fixed64), of a Metric its name (a text).
    """
    for record in _wire_records(request):
        tags = _tags(record.data)
        if tags & _ONLY_SPANS:
            return "traces"
        if tags & _ONLY_LOGS:
            return "logs"
        if tags & _METRIC_DATA and _ids(record.data, "traces") == NO_IDS:
            return "other"
    batches = [request[field.start : field.end] for field in _fields(request) if field[:2] == (1, _LENGTH)]
    return "traces" if batches and not any(map(_holds_batch, batches)) else None


def _tags(message: bytes) -> set[tuple[int, int]]:
    """The numbers and wire types of the fields of a message."""
    return {field[:2] for field in _fields(message)}


def _holds_batch(message: bytes) -> bool:
    """Whether the resource's place has another batch, as in Tempo's answers. A real resource's field 2 is a number."""
    inner = (message[field.start : field.end] for field in _fields(message) if field[:2] == (_SHARED, _LENGTH))
    return any((2, _LENGTH) in _tags(one) for one in inner)


def _ids(record: bytes, signal: AnySignal) -> Ids:
    """Read the ids of a record that does not decode; an id that cannot be read is None."""
    values: dict[int, bytes] = {}
    for field in _fields(record):
        if field.wire_type == _LENGTH and field.end - field.start in (_TRACE_BYTES, _SPAN_BYTES):
            values[field.number] = record[field.start : field.end]
    trace, span = (values.get(number, b"") for number in _ID_FIELDS[signal])
    return (
        trace.hex() if len(trace) == _TRACE_BYTES and any(trace) else None,
        span.hex() if len(span) == _SPAN_BYTES and any(span) else None,
    )


class _MessageType(Protocol):
    def FromString(self, data: bytes, /) -> object: ...  # noqa: N802 # protobuf's name


class ProtobufSpanBuilder(OtlpSpanBuilder):
    """Builds records of protobuf requests. It needs no `check_depth`, because protobuf itself limits the nesting."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._types, self._error = _message_types()

    def read(self, data: bytes, location: str) -> Iterable[Record]:
        """Read every record of one request, whose name is `location`."""
        with suppress(Refused):
            batches = self._decode(data, "traces").resource_spans
            if batches and _begins_with_span(batches):  # fast path: splitting a request takes several times as long
                return self.traces(batches, location)
        signal = _signal(data)
        if signal == "other":
            self.reading.stats.other_signals += 1
            return ()
        with suppress(Refused):
            if signal or not data:
                return self._records(self._decode(data, signal or "traces"), signal, location)
        return self.read_each(data, location)

    def read_each(self, data: bytes, location: str, problem: Refused | None = None) -> Iterator[Record]:
        """Read every whole record of a request that does not decode. `problem`: why the request has no end, if so.

        Everything else in it (a torn tail, rubbish) gives one Quarantined of kind "unknown".
        """
        signal, ids = _signal(data), NO_IDS
        if signal == "other":
            return  # a torn request of metrics costs nothing
        kind: Kind = "log" if signal == "logs" else "span"
        is_broken = signal is None
        for record in _wire_records(data):
            if not record.whole:
                is_broken = True
                ids = _ids(record.data, signal or "traces") if record.data else ids
                continue
            try:
                request = self._decode(record.request, signal or "traces")
            except Refused as refused:
                yield refused.quarantine(location, kind, _ids(record.data, signal or "traces"))
            else:
                yield from self._records(request, signal, location)
        if problem is None and is_broken:
            problem = Refused(
                "not OTLP", detail="this is not a request, or its length is wrong (export Tempo's answers as JSON)"
            )
        if problem is not None:
            yield problem.quarantine(location, ids=ids)

    def _records(self, request: otlp.ExportRequest, signal: AnySignal | None, location: str) -> Iterator[Record]:
        if signal == "logs":
            return self.logs(request.resource_logs or None, location)
        return self.traces(request.resource_spans or None, location)

    def _decode(self, data: bytes, signal: AnySignal) -> otlp.ExportRequest:
        """Decode a request. Raises Refused."""
        try:
            return cast("otlp.ExportRequest", self._types[signal].FromString(data))
        except self._error as error:
            raise Refused(_reason(str(error)), detail=str(error)) from error

    def hex(self, raw: object, digits: int) -> str:  # noqa: ARG002 # their length tells
        """Read an id, as `OtlpSpanBuilder.hex` asks."""
        return raw.hex() if isinstance(raw, bytes) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `OtlpSpanBuilder.attributes` asks."""
        messages = cast("Iterable[KeyValue]", pairs or ())
        flat: dict[str, Value] = {}
        for pair in messages:
            value = pair.value
            flat[pair.key] = value.string_value or self._value(value, (owner, pair.key), dropped)
        return flat  # most values are text, which needs no call of `_value`

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `OtlpSpanBuilder.value` asks."""
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
        if 0 not in numbers:  # unset fields are 0: so all items are whole numbers, as in most lists of token ids
            return numbers
        return [self._value(item, site, dropped) for item in array.values]


def _begins_with_span(batches: Sequence[otlp.ResourceSpans]) -> bool:
    """Whether the first record is a span with a start: logs and metrics decode as spans, too, but without a start."""
    scoped = batches[0].scope_spans
    spans = scoped[0].spans if scoped else None
    return bool(spans and spans[0].start_time_unix_nano)


def _reason(problem: str) -> QuarantineReason:
    if "UTF-8" in problem:
        return "invalid UTF-8"
    return "nested too deep" if "MaxDepth" in problem else "bad field"


def _message_types() -> tuple[dict[AnySignal, _MessageType], type[Exception]]:
    """Import the message types and the error of decoding. Imported late, because only protobuf dumps need them."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.logs.v1.logs_pb2 import (  # noqa: PLC0415
        LogsData,  # pyright: ignore[reportMissingTypeStubs] # it comes without
    )
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData  # noqa: PLC0415

    types = {"traces": TracesData, "logs": LogsData}
    return cast("dict[AnySignal, _MessageType]", types), cast("type[Exception]", DecodeError)
