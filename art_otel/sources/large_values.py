"""Large values: what is beyond `Limits.max_attribute_bytes` is set aside, and the record it stands in is kept.

Invariant: a value counts the same whatever encoding it came in, and never more than the bytes it stood in. So a message
within the limit holds no large value, and only longer messages are looked into.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from art_otel.sources.format import Record
from art_otel.sources.limits import Limits, advice
from art_otel.sources.refusals import NO_IDS, Ids, Refused, attribute_path
from art_otel.spans import LogRecord, Quarantined, Resource, Span, Value, size_of
from art_otel.spans.quarantine import Kind


def without_large_values(records: Iterable[Record], size: int, place: str, limits: Limits) -> Iterable[Record]:
    """The records of a message of `size` bytes at `place`: a value that is too large is None, and quarantined."""
    limit = limits.max_attribute_bytes
    return records if size <= limit else _LargeValues(limit, place).removed(records)


class _LargeValues:
    """Those of one message."""

    def __init__(self, limit: int, place: str) -> None:
        self._limit = limit
        self._place = place
        self._resources: dict[int, tuple[Resource, Resource]] = {}

    def removed(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records without them."""
        for record in records:
            if isinstance(record, Span):
                yield from self._span(record)
            elif isinstance(record, LogRecord):
                yield from self._log_record(record)
            else:
                yield record

    def _span(self, span: Span) -> Iterator[Record]:
        large: dict[str, int] = {}
        resource = span.resource
        if id(resource) not in self._resources:
            attributes = self._kept(resource.attributes, "resource.", large)
            self._resources[id(resource)] = (resource, Resource(attributes=attributes) if large else resource)
            yield from self._damages(large)
            large = {}
        events = tuple(
            replace(event, attributes=self._kept(event.attributes, f"events[{index}].", large))
            for index, event in enumerate(span.events)
        )
        links = tuple(
            replace(link, attributes=self._kept(link.attributes, f"links[{index}].", large))
            for index, link in enumerate(span.links)
        )
        attributes = self._kept(span.attributes, "", large)
        _, resource = self._resources[id(resource)]
        yield replace(span, attributes=attributes, events=events, links=links, resource=resource)
        yield from self._damages(large, "span", span.key)

    def _log_record(self, record: LogRecord) -> Iterator[Record]:
        large: dict[str, int] = {}
        body, size = record.body, size_of(record.body)
        if size > self._limit:
            body, large["body"] = None, size
        yield replace(record, attributes=self._kept(record.attributes, "", large), body=body)
        yield from self._damages(large, "log", record.key)

    def _kept(self, attributes: Mapping[str, Value], owner: str, large: dict[str, int]) -> dict[str, Value]:
        """The attributes, None for one that is too large; `large` is told its path and size."""
        kept = dict(attributes)
        for name, value in attributes.items():
            size = size_of(value)
            if size > self._limit:
                kept[name] = None
                large[attribute_path((owner, name))] = size
        return kept

    def _damages(self, large: Mapping[str, int], kind: Kind = "unknown", ids: Ids = NO_IDS) -> Iterator[Quarantined]:
        """One for a record; its path leads to the first large value and its detail names the others."""
        if large:
            (first, size), *others = large.items()
            also = f"; also: {', '.join(path for path, _ in others)}" if others else ""
            detail = f"a value of {size} bytes; {advice('max_attribute_bytes')}{also}"
            yield Refused("over a limit", first, detail).damage(self._place, kind, ids, partial=True)
