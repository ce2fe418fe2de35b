"""Secrets: the records of a log without them, as a live app's spans are.

Invariant: every text of a span is read but the rollout's id. A span says how many secrets were found in it, and a call
that held one says so and loses its token ids, which would spell it: it is not trained.
"""

import io
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.scrubbing import Hits, Scrubber
from art_otel.sources.format import Reading, Record
from art_otel.spans import Attributes, Event, Span, Value

_TOKENS: Final = (names.PROMPT_TOKENS, names.COMPLETION_TOKENS_PREFIX, names.COMPLETION_LOGPROBS_PREFIX)
_LEFT_ALONE: Final = (names.ROLLOUT_ID, *_TOKENS)
_CONTENT: Final = ("input.value", "output.value")


def scrubbed(
    stream: io.BufferedReader, reading: Reading, *, reads: Callable[[io.BufferedReader, Reading], Iterator[Record]]
) -> Iterator[Record]:
    """What `reads` gives, without secrets."""
    scrubber = None if reading.scrub == "off" else Scrubber(reading.scrub)
    for record in reads(stream, reading):
        yield _scrubbed(record, scrubber) if scrubber is not None and isinstance(record, Span) else record


def _scrubbed(span: Span, scrubber: Scrubber) -> Span:
    hits = Hits()
    content = {name: span.attributes[name] for name in _CONTENT if name in span.attributes}
    scrubbed_content = _attributes(content, scrubber, hits)
    holds_content = hits.count > 0
    others = {name: value for name, value in span.attributes.items() if name not in content}
    attributes = _attributes(others, scrubber, hits) | scrubbed_content
    events = tuple(_event(event, scrubber, hits) for event in span.events)
    message = scrubber.text(span.status_message, hits)
    if not hits.count:
        return span
    if holds_content and scrubber.alters:
        attributes = {name: value for name, value in attributes.items() if not name.startswith(_TOKENS)}
    if holds_content:
        attributes[names.SCRUBBED_CONTENT] = True
    attributes[names.SCRUBBED] = hits.count
    return msgspec.structs.replace(span, attributes=attributes, events=events, status_message=message)


def _attributes(attributes: Attributes, scrubber: Scrubber, hits: Hits) -> dict[str, Value]:
    return {
        name: value if name.startswith(_LEFT_ALONE) else scrubber.value(name, value, hits, by_name=False)
        for name, value in attributes.items()
    }


def _event(event: Event, scrubber: Scrubber, hits: Hits) -> Event:
    return msgspec.structs.replace(event, attributes=_attributes(event.attributes, scrubber, hits))
