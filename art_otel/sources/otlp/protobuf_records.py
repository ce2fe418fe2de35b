"""Builds records of OTLP protobuf: a request is decoded whole, and one that does not decode record by record.

Invariant: a record that is sound alone is kept, a bad one is quarantined, and what no record explains (a torn tail,
rubbish) is exactly one Quarantined of kind "unknown".
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeAlias, cast

from art_otel.sources.format import Reading, Record
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.protobuf_split import FIRST, SECOND, Field, Signal, Split
from art_otel.sources.otlp.protobuf_values import ProtobufValues
from art_otel.sources.otlp.records import Batch, scope_of
from art_otel.sources.refusals import NO_IDS, Refused
from art_otel.spans import Quarantined, QuarantineReason

_Name: TypeAlias = Literal["TracesData", "LogsData", "Span", "LogRecord", "Resource", "InstrumentationScope"]


class _MessageType(Protocol):
    def FromString(self, data: bytes, /) -> object: ...  # noqa: N802 # protobuf's name


class ProtobufSpanBuilder(ProtobufValues):
    """Builds records of requests in protobuf."""

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
