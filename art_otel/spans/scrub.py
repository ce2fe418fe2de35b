"""Scrubbing of spans and log records that are read: of an exporter that sends them, or of the log of an agent.

Invariant: records without secrets are the very same ones; ids, times and order stay.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from art_otel.attributes import SCRUBBED_CONTENT
from art_otel.scrubbing import RecordScrubber, ScrubbedPart
from art_otel.spans.span import LogRecord, Resource, Scope, Span

_BODY: Final = "art.body"
"""The name under which a body is read: what it says was said, so no name in it makes it a secret."""

replace = msgspec.structs.replace


def scrub_records(records: Iterable[Span | LogRecord], scrubber: RecordScrubber) -> Iterator[Span | LogRecord]:
    """Give the records without secrets."""
    shared: dict[tuple[int, Scope], tuple[Resource, Scope]] = {}  # the spans of a request share a few
    for record in records:
        if isinstance(record, LogRecord):
            yield _scrub_log_record(record, scrubber)
            continue
        key = (id(record.resource), record.scope)
        if key not in shared:
            shared[key] = (_scrub_resource(record.resource, scrubber), _scrub_scope(record.scope, scrubber))
        resource, scope = shared[key]
        if resource is not record.resource or scope is not record.scope:
            record = replace(record, resource=resource, scope=scope)  # noqa: PLW2901 # the same span
        yield scrub_span(record, scrubber)


def scrub_span(span: Span, scrubber: RecordScrubber) -> Span:
    """Give a span without secrets, but for what it shares with others: its resource and its scope."""
    parts = [
        ScrubbedPart(span.name, span.attributes),
        ScrubbedPart(span.status_message, {}),
        *(ScrubbedPart(event.name, event.attributes, is_event=True) for event in span.events),
        *(ScrubbedPart("", link.attributes) for link in span.links),
    ]
    scrubbed = scrubber.scrub(parts)
    if scrubbed is None:
        return span
    own, message, *rest = scrubbed
    events, links = rest[: len(span.events)], rest[len(span.events) :]
    return replace(
        span,
        name=own.text,
        attributes=own.attributes,
        status_message=message.text,
        events=tuple(
            replace(event, name=part.text, attributes=part.attributes)
            for event, part in zip(span.events, events, strict=True)
        ),
        links=tuple(replace(link, attributes=part.attributes) for link, part in zip(span.links, links, strict=True)),
    )


def _scrub_resource(resource: Resource, scrubber: RecordScrubber) -> Resource:
    scrubbed = scrubber.scrub([ScrubbedPart("", resource.attributes)])
    return resource if scrubbed is None else Resource(attributes=dict(scrubbed[0].attributes))


def _scrub_scope(scope: Scope, scrubber: RecordScrubber) -> Scope:
    scrubbed = scrubber.scrub([ScrubbedPart(scope.name, {}), ScrubbedPart(scope.version, {})])
    return scope if scrubbed is None else Scope(name=scrubbed[0].text, version=scrubbed[1].text)


def _scrub_log_record(log: LogRecord, scrubber: RecordScrubber) -> LogRecord:
    """Scrub a log record. Its body is content of the call it belongs to, which the mark keeps from being trained."""
    scrubbed = scrubber.scrub([ScrubbedPart(log.event_name, log.attributes), ScrubbedPart("", {_BODY: log.body})])
    if scrubbed is None:
        return log
    own, body = scrubbed
    attributes = {**own.attributes, SCRUBBED_CONTENT: True}
    return replace(log, event_name=own.text, body=body.attributes[_BODY], attributes=attributes)
