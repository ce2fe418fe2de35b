"""SpanScrubber: the spans of rollouts without secrets, rewritten before they are written or exported.

Invariant: what of a rollout leaves the app went through a RecordScrubber. If anything goes wrong the span loses its
contents; they never leave unread. Nothing raises into the app. Spans outside rollouts are the app's own: one that ended
before its trace became a rollout was exported as it is, and is scrubbed for the spool.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from art_otel.attributes import REQUEST_MESSAGES, RESPONSE_CHOICES, SCRUBBED, SCRUBBED_CONTENT
from art_otel.conventions.content_names import CONTENT_NAMES
from art_otel.scrubbing import RecordScrubber, ScrubbedPart, Scrubber, replacement
from art_otel.tracing.sdk.span_lines import as_dict
from art_otel.tracing.sdk.span_parts import SpanParts, event_with, link_with

logger = logging.getLogger(__name__)

_SCANNED: Final = frozenset(
    {REQUEST_MESSAGES, RESPONSE_CHOICES, "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions"}
)
"""What instrumentors of clients write of the bodies of a request and its response, and of nothing else."""

_MAX_SHARED: Final = 256
"""Resources and scopes that are remembered; a process has a few."""


_clean: Final[ContextVar[tuple[SpanContext, Scrubber] | None]] = ContextVar("art-otel-clean-texts", default=None)


@contextmanager
def texts_are_clean(context: SpanContext, scrubber: Scrubber) -> Generator[None]:
    """While the span ends here, no scrubber need look for what this one has not found in the bodies of its call."""
    token = _clean.set((context, scrubber))
    try:
        yield
    finally:
        _clean.reset(token)


class SpanScrubber:
    """Changes a finished span in place, before anybody else reads it."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.failures = 0
        self._records = RecordScrubber(scrubber, CONTENT_NAMES)
        self._shared: dict[int, tuple[object, Any]] = {}

    def __call__(self, span: ReadableSpan) -> ReadableSpan:
        """The span without secrets: itself where it has none."""
        try:
            parts = self._scrubbed(span)
        except Exception:  # noqa: BLE001 # whatever it was, the app must not notice and nothing may leak
            parts = self._emptied(span)
        if parts is not None:
            parts.put(span)
        return span

    def _scrubbed(self, span: ReadableSpan) -> SpanParts | None:
        """Return the scrubbed parts of the span; None if nothing in it had to change."""
        scope = span.instrumentation_scope
        resource = self._once(span.resource, self._resource)
        scope = None if scope is None else self._once(scope, self._scope)
        scrubbed = self._records.scrub(
            [
                ScrubbedPart(span.name, as_dict(span.attributes)),
                ScrubbedPart(span.status.description or "", {}),
                *(ScrubbedPart(event.name, as_dict(event.attributes), is_event=True) for event in span.events),
                *(ScrubbedPart("", as_dict(link.attributes)) for link in span.links if link.attributes),
            ],
            self._scanned(span),
        )
        if scrubbed is None and resource is span.resource and scope is span.instrumentation_scope:
            return None
        parts = SpanParts.of(span)
        parts.resource, parts.scope = resource, scope
        return parts if scrubbed is None else _with_texts(parts, scrubbed)

    def _scanned(self, span: ReadableSpan) -> AbstractSet[str]:
        """Return the names of attributes whose texts were scanned where the call was captured, for the same secrets."""
        clean = _clean.get()
        if clean is None or clean[0] != span.get_span_context() or clean[1].patterns != self._records.scrubber.patterns:
            return frozenset()
        return _SCANNED

    def _once(self, shared: Any, scrub: Callable[[Any], Any]) -> Any:  # noqa: ANN401 # a resource or a scope
        cached = self._shared.get(id(shared))
        if cached is None or cached[0] is not shared:
            if len(self._shared) >= _MAX_SHARED:
                self._shared.clear()
            cached = self._shared[id(shared)] = (shared, scrub(shared))
        return cached[1]

    def _resource(self, resource: Resource) -> Resource:
        scrubbed = self._records.scrub([ScrubbedPart("", resource.attributes)])
        return resource if scrubbed is None else Resource(scrubbed[0].attributes, resource.schema_url)

    def _scope(self, scope: InstrumentationScope) -> InstrumentationScope:
        scrubbed = self._records.scrub(
            [ScrubbedPart(scope.name, scope.attributes or {}), ScrubbedPart(scope.version or "", {})]
        )
        if scrubbed is None:
            return scope
        name, version = scrubbed
        return InstrumentationScope(name.text, version.text or None, scope.schema_url, name.attributes)

    def _emptied(self, span: ReadableSpan) -> SpanParts:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # at 1, 2, 4, 8, …
            logger.warning("art-otel: %d spans could not be scrubbed and are left empty", self.failures, exc_info=True)
        return SpanParts.emptied(span, replacement("failed"), {SCRUBBED: 1, SCRUBBED_CONTENT: True})


def _with_texts(parts: SpanParts, scrubbed: Sequence[ScrubbedPart]) -> SpanParts:
    """Put the texts of a span, in the order in which they were given to the scrubber, into its parts."""
    own, message, *rest = scrubbed
    parts.name, parts.attributes = own.text, dict(own.attributes)
    if parts.description is not None:
        parts.description = message.text
    texts = iter(rest)
    parts.events = [_event(event, next(texts)) for event in parts.events]
    parts.links = [link_with(link, next(texts).attributes) if link.attributes else link for link in parts.links]
    return parts


def _event(event: Any, part: ScrubbedPart) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
    return event_with(event, name=part.text, attributes=part.attributes)
