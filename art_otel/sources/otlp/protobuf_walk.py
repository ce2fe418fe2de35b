"""A walk over the containers of one OTLP protobuf request: its batches and records, without decoding them.

Invariant: it goes as far as tags and lengths can be followed; `Walk.problem` says what stopped it first.
"""

import contextlib
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from art_otel.sources.otlp.protobuf_wire import FIXED32, FIXED64, LENGTH, VARINT, Field, Malformed, read_fields
from art_otel.sources.refusals import Ids, Refused

Signal: TypeAlias = Literal["traces", "logs", "other"]

FIRST: Final = 1
"""In every container: the resource or the scope; in a request: a batch."""
SECOND: Final = 2
"""In a batch: the records of one scope; in those: a record."""

_ONLY_SPANS: Final = frozenset({(6, VARINT), (7, FIXED64), (8, FIXED64)})  # kind, start, end
_ONLY_LOGS: Final = frozenset({(1, FIXED64), (11, FIXED64), (2, VARINT), (8, FIXED32)})  # times, severity, flags
_METRIC_DATA: Final = frozenset({(5, LENGTH), (7, LENGTH), (9, LENGTH), (10, LENGTH), (11, LENGTH)})
_ID_FIELDS: Final = {"traces": (1, 2), "logs": (9, 10)}
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class Walk:
    """The containers of one request."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.problem: Refused | None = None

    @property
    def root(self) -> Field:
        """The request itself."""
        return Field(0, LENGTH, 0, len(self.data))

    def inside(self, container: Field, number: int) -> Iterator[Field]:
        """The messages in field `number` of a container."""
        try:
            for field in read_fields(self.data, container.start, container.end):
                if not field.whole:
                    self._stop("a length goes beyond the message it stands in")
                if field.number == number and field.wire_type == LENGTH:
                    yield field
        except Malformed as error:
            self._stop(str(error))

    def _stop(self, detail: str) -> None:
        self.problem = self.problem or Refused("not OTLP", detail=detail)


def signal_of(data: bytes) -> Signal | None:
    """What a request holds, by the wire types of its records' fields; None when it holds no batch.

    A Span's field 1 is its trace id (bytes), a LogRecord's a time (fixed64), a Metric's its name.
    """
    held: Signal | None = None
    walk = Walk(data)
    for batch in walk.inside(walk.root, FIRST):
        held = held or "traces"
        for scoped in walk.inside(batch, SECOND):
            for record in walk.inside(scoped, SECOND):
                tags: set[tuple[int, int]] = set()
                for tag in _tags(data, record):
                    if tag in _ONLY_SPANS:
                        return "traces"
                    tags.add(tag)
                if tags & _ONLY_LOGS:
                    return "logs"
                if tags & _METRIC_DATA and known_ids(data, record, "traces") == (None, None):
                    held = "other"
    return held


def is_answer(data: bytes) -> bool:
    """Whether field 1 holds a whole request, as in Tempo's answers, and no batch.

    A batch has its resource where a request has a batch, and in a resource field 2 is a number.
    """
    walk = Walk(data)
    first = next(walk.inside(walk.root, FIRST), None)
    inner = walk.inside(first, FIRST) if first else ()
    return any((SECOND, LENGTH) in _tags(data, one) for one in inner)


def known_ids(data: bytes, record: Field, signal: Signal | None) -> Ids:
    """The ids of a record that cannot be decoded, as far as they can be read."""
    found: dict[int, bytes] = {}
    try:
        for field in read_fields(data, record.start, record.end):
            if field.wire_type == LENGTH and field.whole and field.end - field.start in (_TRACE_BYTES, _SPAN_BYTES):
                found[field.number] = data[field.start : field.end]
    except Malformed:
        pass  # what came before may do
    trace, span = (found.get(number, b"") for number in _ID_FIELDS["logs" if signal == "logs" else "traces"])
    return (
        trace.hex() if len(trace) == _TRACE_BYTES and any(trace) else None,
        span.hex() if len(span) == _SPAN_BYTES and any(span) else None,
    )


def _tags(data: bytes, record: Field) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(Malformed):  # what came before may do
        for field in read_fields(data, record.start, record.end):
            yield field.number, field.wire_type
