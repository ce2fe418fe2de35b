"""Copies: keep each span once, although it was delivered several times.

copies                              kept
start only, then the whole span     the whole span
the same span from two stores       the copy with most data, with the other's data that it lacks
editions of a gateway's root        the attributes of all editions; of equal ones the newest
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

import msgspec

from art_otel.attributes import ROLLOUT_EDITION
from art_otel.spans.span import Event, Resource, Span, SpanKey, Value


class UniqueSpans(msgspec.Struct, frozen=True, kw_only=True):
    """Each span once, in any order.

    `deliveries` counts how often each span came. `start_only` counts for ended spans how often only the start came.
    """

    spans: dict[SpanKey, Span]
    deliveries: Mapping[SpanKey, int]
    start_only: Mapping[SpanKey, int]


def deduplicate(spans: Sequence[Span]) -> UniqueSpans:
    """Keep each span once."""
    unique = {(span.trace_id, span.span_id): span for span in spans}  # `span.key` takes twice as long
    if len(unique) == len(spans):
        return UniqueSpans(spans=unique, deliveries=dict.fromkeys(unique, 1), start_only={})
    deliveries = Counter(span.key for span in spans)
    copies: dict[SpanKey, list[Span]] = {}
    for span in spans:
        if deliveries[span.key] > 1:
            copies.setdefault(span.key, []).append(span)
    start_only: dict[SpanKey, int] = {}
    for key, several in copies.items():
        unique[key] = _merged(several)
        starts = sum(copy.end_ns is None for copy in several)
        if starts and unique[key].end_ns is not None:
            start_only[key] = starts
    return UniqueSpans(spans=unique, deliveries=deliveries, start_only=start_only)


def is_same(one: Span, other: Span) -> bool:
    """Whether both spans have the same values of the same types; for Python alone 1, 1.0 and True are equal."""
    return one is other or (one == other and _encoded(one) == _encoded(other))


def _encoded(span: Span) -> bytes:
    return msgspec.msgpack.encode(span, order="deterministic")


def edition_of(span: Span) -> int:
    """The edition number of a copy; 0 for all spans except gateways' own ones."""
    number = span.attributes.get(ROLLOUT_EDITION, 0)
    try:
        return int(number)  # of which some stores make a text
    except (TypeError, ValueError, OverflowError):
        return 0


def _merged(copies: Sequence[Span]) -> Span:
    """Merge the copies of a span. Copies of one edition are equal or lost something; editions of gateways add up.

    The attributes of all editions count; if several have one, the newest edition's value. The end is that of an
    edition with a status, which shows that the app ended the rollout; without one it is the latest end.
    """
    by_number: dict[int, list[Span]] = {}
    for copy in copies:
        by_number.setdefault(edition_of(copy), []).append(copy)
    editions = [_merged_copies(by_number[number]) for number in sorted(by_number)]
    if len(editions) == 1:
        return editions[0]
    ended = [edition for edition in editions if edition.end_ns is not None]
    with_status = [edition for edition in ended if edition.status != "unset"]
    newest = (with_status or ended or editions)[-1]
    attributes: dict[str, Value] = {}
    at_once: dict[tuple[str, int], list[Event]] = {}
    for edition in editions:
        attributes |= edition.attributes
        of_edition: dict[tuple[str, int], list[Event]] = {}
        for event in edition.events:  # by name and microsecond, to which some stores round
            of_edition.setdefault((event.name, event.time_ns // 1000), []).append(event)
        at_once |= of_edition
    events: list[Event] = []
    last: dict[str, list[dict[str, Value]]] = {}
    for name, moment in sorted(at_once, key=itemgetter(1, 0)):
        # A client that got no answer sends the end of a rollout again, maybe to another gateway: the same is said once.
        if (says := [event.attributes for event in at_once[name, moment]]) != last.get(name):
            last[name] = says
            events += at_once[name, moment]
    return msgspec.structs.replace(
        newest,
        start_ns=min(edition.start_ns for edition in editions),
        end_ns=newest.end_ns if with_status else max((edition.end_ns or 0 for edition in ended), default=None),
        attributes=attributes,
        events=tuple(events),
        dropped_attributes_count=max(edition.dropped_attributes_count for edition in editions),
        dropped_events_count=max(edition.dropped_events_count for edition in editions),
        dropped_links_count=max(edition.dropped_links_count for edition in editions),
    )


def _merged_copies(copies: Sequence[Span]) -> Span:
    """Merge the copies of one edition: the copy with most data, with the others' data that it lacks."""
    if all(is_same(copy, copies[0]) for copy in copies):
        return copies[0]
    resource_names = frozenset(name for copy in copies for name in copy.resource.attributes)

    def richness(span: Span) -> tuple[bool, int, int, int, int, int, bytes]:
        """A sort key: an ended span beats its start, then more data wins; then the bytes, so that order never does."""
        return (
            span.end_ns is not None,
            # Some stores put the attributes of a resource among the span's, and some make a text of every value.
            sum(name not in resource_names for name in span.attributes),
            _size_of_events(span),
            len(span.links) + bool(span.scope.name) + (span.kind != "unspecified") + (span.status != "unset"),
            sum(not isinstance(value, str) for value in span.attributes.values()),
            (span.start_ns % 1000 > 0) + ((span.end_ns or 0) % 1000 > 0),  # some round times to microseconds
            _encoded(span),
        )

    ranked = sorted(copies, key=richness, reverse=True)
    best = ranked[0]
    with_status = next((copy for copy in ranked if copy.status != "unset"), best)
    # The SDK counts what it dropped before anybody exports, so a copy without the count lost it. It drops the oldest
    # attributes first, the rollout's id among them; the record of the start has those.
    dropped = max(copy.dropped_attributes_count for copy in ranked)
    started = next((copy for copy in ranked if copy.end_ns is None), best)
    of_resource = {name: value for copy in reversed(ranked) for name, value in copy.resource.attributes.items()}
    return msgspec.structs.replace(
        best,
        kind=next((copy.kind for copy in ranked if copy.kind != "unspecified"), best.kind),
        attributes={**started.attributes, **best.attributes} if dropped else best.attributes,
        events=max(ranked, key=_size_of_events).events,
        links=max(ranked, key=lambda copy: len(copy.links)).links,
        status=with_status.status,
        status_message=with_status.status_message,
        scope=next((copy.scope for copy in ranked if copy.scope.name), best.scope),
        resource=best.resource if of_resource == best.resource.attributes else Resource(attributes=of_resource),
        dropped_attributes_count=dropped,
        dropped_events_count=max(copy.dropped_events_count for copy in ranked),
        dropped_links_count=max(copy.dropped_links_count for copy in ranked),
    )


def _size_of_events(span: Span) -> int:
    return sum(1 + len(event.attributes) for event in span.events)
