"""Redactor: finished spans without secrets.

Invariant: after `redact` no other processor of the provider can see what was replaced, because they all read this one
span. If anything goes wrong the span loses its contents; they never leave unread. Nothing raises into the app.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from art_otel.attributes import REDACTED, ROLLOUT_ID
from art_otel.spans import Attributes, Value
from art_otel.tracing.redaction.patterns import BUILTIN_PATTERNS, EMAIL, SecretPattern
from art_otel.tracing.redaction.secret_names import kind_of_attribute
from art_otel.tracing.redaction.span_redaction import LEFT_ALONE, SpanRedaction
from art_otel.tracing.redaction.texts import Tally, Texts, replacement
from art_otel.tracing.span_parts import SpanParts, as_dict, can_put

logger = logging.getLogger(__name__)

_OWN_KIND: Final = "pattern"
_FAILED: Final = "failed"
_ONCE: Final = 256
"""Resources and scopes that are remembered; a process has a few."""

_NAMES: Final = 4096
"""Names of attributes that are remembered."""

_TEXTLESS: Final = frozenset({str, bool, int, float, type(None)})
"""Types of values in which no text is, besides texts themselves."""


class Redactor:
    """Replaces secrets in spans by `[redacted:<kind>]`.

    `patterns` are what secrets look like, as records, compiled or as text; `[*BUILTIN_PATTERNS, r"…"]` adds one.
    `emails` adds e-mail addresses. `hook` gets each text after the patterns and returns what may be kept of it. Where
    there are patterns of the app's own or a hook, every text of every span is read.
    """

    def __init__(
        self,
        patterns: Sequence[SecretPattern | re.Pattern[str] | str] = BUILTIN_PATTERNS,
        *,
        emails: bool = False,
        hook: Callable[[str], str] | None = None,
    ) -> None:
        records = [_record(pattern) for pattern in patterns]
        self._texts = Texts([*records, EMAIL] if emails else records, hook)
        self._clean_names: set[str] = set()
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
            parts = _left_out(span)
            parts.put(span)
        return cast(int, parts.attributes.get(REDACTED, 0))

    def redacted(self, span: ReadableSpan) -> ReadableSpan:
        """A redacted copy of a span, which may still run; the span itself where there is nothing to redact."""
        try:
            parts = self._parts(span)
            return span if parts is None else parts.copy(span)
        except Exception:  # noqa: BLE001 # as in redact
            return _left_out(span).copy(span)

    def redact_text(self, text: str) -> str:
        """A text without secrets."""
        return self._texts.redact(text, Tally())

    def _parts(self, span: ReadableSpan) -> SpanParts | None:
        """What the span may say; None where that is all it says."""
        resource, scope = self._resource(span.resource), self._scope(span.instrumentation_scope)
        shared = resource is not span.resource or scope is not span.instrumentation_scope
        if not shared and not self._may_hold(span):
            return None
        parts = SpanParts.of(span)
        SpanRedaction(self._texts).apply(parts)
        parts.resource, parts.scope = resource, scope
        return parts

    def _may_hold(self, span: ReadableSpan) -> bool:
        if self._texts.reads_all:
            return True
        texts = [span.name, span.status.description or ""]
        for attributes in (span.attributes, *(part.attributes for part in (*span.events, *span.links))):
            given = as_dict(attributes)
            if not given.keys() <= self._clean_names and not self._are_clean(given):
                return True
            _collect(given, texts)
        texts += [event.name for event in span.events]
        return self._texts.may_hold(texts)

    def _are_clean(self, names: Iterable[str]) -> bool:
        """Whether names of attributes tell of no secret; those that do not are remembered."""
        new = [name for name in names if name not in self._clean_names]
        if any(kind_of_attribute(name) is not None for name in new) or self._texts.may_hold(new):
            return False
        if len(self._clean_names) >= _NAMES:
            self._clean_names = set()
        self._clean_names |= set(new)
        return True

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
        name, version = redaction.text(scope.name), redaction.text(scope.version or "")
        kept = redaction.attributes(scope.attributes or {})
        if not redaction.tally.count:
            return scope
        return InstrumentationScope(name, version or None, scope.schema_url, kept)


def _record(pattern: SecretPattern | re.Pattern[str] | str) -> SecretPattern:
    if isinstance(pattern, SecretPattern):
        return pattern
    return SecretPattern(kind=_OWN_KIND, regex=re.compile(pattern))


def _collect(given: Attributes, texts: list[str]) -> None:
    """Add every text of the attributes, however deep."""
    texts += [text for name, text in given.items() if type(text) is str and not name.startswith(LEFT_ALONE)]
    values: list[Value] = [value for value in given.values() if type(value) not in _TEXTLESS]
    while values:
        value = values.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bytes):
            texts.append(value.decode("latin-1"))
        elif isinstance(value, Mapping):
            texts += map(str, cast(Mapping[Any, Value], value))
            values += cast(Mapping[Any, Value], value).values()
        elif isinstance(value, Sequence):
            values += cast(Sequence[Value], value)


def _left_out(span: ReadableSpan) -> SpanParts:
    """A span that could not be redacted, without its contents."""
    logger.warning("art-otel: a span could not be redacted, so its contents are left out", exc_info=True)
    kept: dict[str, Value] = {REDACTED: 1}
    rollout_id = (span.attributes or {}).get(ROLLOUT_ID)
    if rollout_id is not None:
        kept[ROLLOUT_ID] = rollout_id
    name = replacement(_FAILED)
    return SpanParts(
        name=name, attributes=kept, events=[], links=[], description=None, resource=Resource({}), scope=None
    )
