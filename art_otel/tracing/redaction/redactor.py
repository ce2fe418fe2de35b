"""Redactor: finished spans without secrets.

Invariant: after `redact` no other processor of the provider can see what was replaced, because they all read this one
span. If anything goes wrong the span loses its contents; they never leave unread. Nothing raises into the app.
"""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from art_otel.attributes import REDACTED, REDACTED_CONTENT
from art_otel.tracing.processing.span_parts import SpanParts, can_put
from art_otel.tracing.redaction.clean_spans import CleanSpans
from art_otel.tracing.redaction.patterns import BUILTIN_PATTERNS, SecretPattern
from art_otel.tracing.redaction.span_redaction import SpanRedaction
from art_otel.tracing.redaction.texts import Tally, Texts, replacement

logger = logging.getLogger(__name__)

_OWN_KIND: Final = "pattern"
_FAILED: Final = "failed"
_ONCE: Final = 256
"""Resources and scopes that are remembered; a process has a few."""


class Redactor:
    """Replaces secrets in spans by `[redacted:<kind>]`.

    `patterns` are what secrets look like, as records, compiled or as text; `[*BUILTIN_PATTERNS, r"…"]` adds one.
    `hook` gets each text after the patterns and returns what may be kept of it. Where
    there are patterns of the app's own or a hook, every text of every span is read.
    """

    def __init__(
        self,
        patterns: Sequence[SecretPattern | re.Pattern[str] | str] = BUILTIN_PATTERNS,
        *,
        hook: Callable[[str], str] | None = None,
    ) -> None:
        self._texts = Texts([_record(pattern) for pattern in patterns], hook)
        self._clean = CleanSpans(self._texts)
        self.failures = 0
        self._shared: dict[int, tuple[object, Any]] = {}
        self.in_place = can_put()
        if not self.in_place:
            logger.warning(
                "art-otel: this version of the OpenTelemetry SDK does not let finished spans be redacted; what art-otel"
                " writes is redacted all the same, what other exporters of this app send is NOT"
            )

    def redact(self, span: ReadableSpan) -> int:
        """Redact a finished span in place; how many parts of it were replaced, which `art.redacted` says too.

        Does nothing where `in_place` is False. A shared resource or scope is redacted too and counts for itself.
        """
        if not self.in_place:
            return 0
        try:
            parts = self._parts(span)
            if parts is None:
                return 0
            parts.put(span)
        except Exception:  # noqa: BLE001 # whatever it was, the app must not notice and nothing may leak
            parts = self._left_out(span)
            parts.put(span)
        return cast(int, parts.attributes.get(REDACTED, 0))

    def rewrite(self, span: ReadableSpan) -> ReadableSpan:
        """Redact a finished span in place where the SDK lets one, else a copy of it; gives what may be written."""
        if not self.in_place:
            return self.redacted(span)
        self.redact(span)
        return span

    def redacted(self, span: ReadableSpan) -> ReadableSpan:
        """A redacted copy of a span, which may still run; the span itself where there is nothing to redact."""
        try:
            parts = self._parts(span)
            return span if parts is None else parts.copy(span)
        except Exception:  # noqa: BLE001 # as in redact
            return self._left_out(span).copy(span)

    def redact_text(self, text: str) -> str:
        """A text without secrets."""
        return self._texts.redact(text, Tally())

    def _parts(self, span: ReadableSpan) -> SpanParts | None:
        """What the span may say; None where that is all it says."""
        resource, scope = self._resource(span.resource), self._scope(span.instrumentation_scope)
        shared = resource is not span.resource or scope is not span.instrumentation_scope
        if not shared and not self._clean.may_hold(span):
            return None
        parts, redaction = SpanParts.of(span), SpanRedaction(self._texts)
        redaction.apply(parts)
        if not shared and not redaction.tally.count:
            return None
        parts.resource, parts.scope = resource, scope
        return parts

    def _resource(self, resource: Resource) -> Resource:
        return self._once(resource, lambda: self._without_secrets(resource))

    def _scope(self, scope: InstrumentationScope | None) -> InstrumentationScope | None:
        return None if scope is None else self._once(scope, lambda: self._scope_without_secrets(scope))

    def _once(self, shared: Any, redacted: Callable[[], Any]) -> Any:  # noqa: ANN401 # a resource or a scope
        known = self._shared.get(id(shared))
        if known is None or known[0] is not shared:
            if len(self._shared) >= _ONCE:
                self._shared.clear()
            known = self._shared[id(shared)] = (shared, redacted())
        return known[1]

    def _without_secrets(self, resource: Resource) -> Resource:
        redaction = SpanRedaction(self._texts)
        kept = redaction.attributes(resource.attributes)
        if not redaction.tally.count:
            return resource
        return Resource({**kept, REDACTED: redaction.tally.count}, resource.schema_url)

    def _scope_without_secrets(self, scope: InstrumentationScope) -> InstrumentationScope:
        redaction = SpanRedaction(self._texts)
        name, version = redaction.name(scope.name), redaction.name(scope.version or "")
        kept = redaction.attributes(scope.attributes or {})
        if not redaction.tally.count:
            return scope
        return InstrumentationScope(name, version or None, scope.schema_url, kept)

    def _left_out(self, span: ReadableSpan) -> SpanParts:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # at 1, 2, 4, 8, …
            logger.warning(
                "art-otel: %d spans could not be redacted; they are left empty", self.failures, exc_info=True
            )
        return SpanParts.emptied(span, replacement(_FAILED), {REDACTED: 1, REDACTED_CONTENT: True})


def _record(pattern: SecretPattern | re.Pattern[str] | str) -> SecretPattern:
    if isinstance(pattern, SecretPattern):
        return pattern
    return SecretPattern(kind=_OWN_KIND, regex=re.compile(pattern))
