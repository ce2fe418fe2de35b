"""The messages inside an OTLP protobuf request, found by their tags and lengths without decoding them.

Invariant: what cannot be followed ends the message that it stands in; nothing here raises, recurses or leaves the data.

Source of the format: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from art_otel.sources.refusals import Ids

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
