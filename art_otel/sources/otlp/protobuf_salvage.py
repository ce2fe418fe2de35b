"""Salvage of an OTLP protobuf request that did not decode: its records one by one, with their resource and scope.

Invariant: as for JSON, a record that is sound alone is kept, a bad one is quarantined, and what no record explains (a
torn tail, rubbish) is exactly one Quarantined of kind "unknown".
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, cast

from art_otel.sources.format import Record
from art_otel.sources.otlp.protobuf_faults import find_fault
from art_otel.sources.otlp.protobuf_records import MessageName, ProtobufRecords
from art_otel.sources.otlp.protobuf_walk import FIRST, SECOND, Signal, Walk, known_ids, signal_of
from art_otel.sources.otlp.protobuf_wire import Field
from art_otel.sources.otlp.records import Batch, scope_of
from art_otel.sources.refusals import NO_IDS, Ids, Refused
from art_otel.spans import Quarantined, Resource, Scope

if TYPE_CHECKING:
    from art_otel.sources.otlp import messages as otlp


def salvage_request(data: bytes, place: str, records: ProtobufRecords, torn: Refused | None) -> Iterator[Record]:
    """Every record of one request that can still be read. `torn` says that the file ended inside the request."""
    salvage = _Salvage(data, place, records)
    if salvage.signal == "other":
        return  # a torn request of metrics costs nothing
    for batch in salvage.walk.inside(salvage.walk.root, FIRST):
        yield from salvage.batch(batch)
    problem = torn or salvage.walk.problem
    if problem is None and salvage.signal is None:
        problem = Refused("not OTLP", detail="there is no batch of spans or log records in it")
    if problem is not None:
        yield problem.damage(place, ids=salvage.torn_ids)


class _Salvage:
    """One request under salvage."""

    def __init__(self, data: bytes, place: str, records: ProtobufRecords) -> None:
        self.walk = Walk(data)
        self.signal: Signal | None = signal_of(data)
        self.torn_ids: Ids = NO_IDS
        self._data = data
        self._place = place
        self._read = records

    def batch(self, batch: Field) -> Iterator[Record]:
        """Every record of one ResourceSpans or ResourceLogs."""
        resource = Resource()
        for field in self.walk.inside(batch, FIRST):
            message = yield from self._shared(field, "Resource")
            resource, damages = self._read.resource(cast("otlp.Resource | None", message), self._place)
            yield from damages
        for scoped in self.walk.inside(batch, SECOND):
            scope = Scope()
            for field in self.walk.inside(scoped, FIRST):
                message = yield from self._shared(field, "InstrumentationScope")
                scope = scope_of(cast("otlp.Scope | None", message))
            for record in self.walk.inside(scoped, SECOND):
                yield from self._record(record, Batch(place=self._place, resource=resource, scope=scope))

    def _shared(self, field: Field, name: MessageName) -> Generator[Quarantined, None, object]:
        """What records share; when it is bad it is a partial Quarantined and its records do without it."""
        if not field.whole:
            return None
        try:
            return self._decode(field, name)
        except Refused as problem:
            yield problem.damage(self._place, partial=True)
            return None

    def _record(self, record: Field, batch: Batch) -> Iterator[Record]:
        if not record.whole:
            self.torn_ids = known_ids(self._data, record, self.signal)
            return
        try:
            if self.signal == "logs":
                yield from self._read.log_record(cast("otlp.LogRecord", self._decode(record, "LogRecord")), batch)
            else:
                yield from self._read.span(cast("otlp.Span", self._decode(record, "Span")), batch)
        except Refused as problem:
            kind = "log" if self.signal == "logs" else "span"
            yield problem.damage(self._place, kind, known_ids(self._data, record, self.signal))

    def _decode(self, field: Field, name: MessageName) -> object:
        data = self._data[field.start : field.end]
        try:
            return self._read.decode(data, name)
        except Refused as problem:
            raise find_fault(data, name, self._read.max_depth) or problem from None
