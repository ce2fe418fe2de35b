"""SpanScrubber: spans without secrets, rewritten before anybody else sees them.

Invariant: every text of a span is read, in whatever it is nested, but for the rollout's id, by which spans are brought
together, and packed tokens, which hold no text. The number of secrets found stands on the span, and where one was in
what a model read or wrote, that stands there too: such a completion must not be trained. If anything goes wrong the
span loses its contents; they never leave unread. Nothing raises into the app.
"""

import json
import logging
from collections.abc import Callable, Generator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from art_otel.attributes import (
    REQUEST_MESSAGES,
    REQUEST_PARAMETERS,
    RESPONSE_CHOICES,
    ROLLOUT_ID,
    SCRUBBED,
    SCRUBBED_CONTENT,
)
from art_otel.conventions.content_names import MESSAGE_EVENT, SPOKEN, names_content
from art_otel.conventions.token_attributes import (
    TOKENS,
    may_hold_prompt_ids,
    spells_unread_prompt,
    without_prompt_ids,
    without_tokens,
)
from art_otel.scrubbing import PIECES, Hits, Scrubber, may_name_secrets, replacement, secret_name
from art_otel.spans import Attributes, Value
from art_otel.tracing.sdk.span_parts import SpanParts, as_dict, can_put, event_with, link_with

logger = logging.getLogger(__name__)

_LEFT_ALONE: Final = (ROLLOUT_ID, *TOKENS)
_ERROR: Final = "exception."
_PARAMETERS: Final = frozenset({REQUEST_PARAMETERS, "llm.invocation_parameters"})
_TOOLS: Final = ("tools", "functions")

_SCANNED: Final = frozenset(
    {REQUEST_MESSAGES, RESPONSE_CHOICES, "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions"}
)
"""What instrumentors of clients write of the bodies of a request and its response, and of nothing else."""

_SHORT: Final = 256
"""Characters of a text that is remembered as clean, with the name of its attribute."""
_MAX_CLEAN: Final = 4096
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


@dataclass(slots=True)
class _Findings(Hits):
    """Counts the secrets in one span. `content` says whether any was in what a model read or wrote."""

    content: bool = False


class SpanScrubber:
    """Changes a finished span in place where the SDK lets one, else a copy of it; gives what may be written."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.failures = 0
        self._scrubber = scrubber
        self._is_clean_name = lru_cache(maxsize=4096)(self._judge_name)
        self._shared: dict[int, tuple[object, Any]] = {}
        self._clean_texts: set[tuple[str, str]] = set()
        self._in_place = can_put()
        if not self._in_place:
            logger.warning(
                "art-otel: this version of the OpenTelemetry SDK does not let finished spans be changed; what art-otel"
                " writes is scrubbed all the same, what other exporters of this app send is NOT"
            )

    def __call__(self, span: ReadableSpan) -> ReadableSpan:
        """The span without secrets: itself where it has none."""
        try:
            parts = None if self._is_clean(span) else self._scrubbed(span)
        except Exception:  # noqa: BLE001 # whatever it was, the app must not notice and nothing may leak
            parts = self._emptied(span)
        if parts is None:
            return span
        if not self._in_place:
            return parts.copy(span)
        parts.put(span)
        return span

    def _is_clean(self, span: ReadableSpan) -> bool:
        """Whether a quick look at all texts together finds nothing, as in nearly all spans."""
        if self._resource_and_scope(span) != (span.resource, span.instrumentation_scope):
            return False
        unread = self._unread(span)
        if not unread:
            return unread is not None
        named = [text for name, text in unread if not name.startswith(SPOKEN)]
        if named and may_name_secrets("\n".join(named)):
            return False
        texts = [text for _, text in unread]
        has_ids = any(map(may_hold_prompt_ids, texts))
        if (has_ids and spells_unread_prompt(as_dict(span.attributes))) or self._scrubber.may_hold_secret(texts):
            return False
        if not has_ids:  # whether those may stand on a span depends on what else does
            self._remember([entry for entry in unread if len(entry[1]) <= _SHORT])
        return True

    def _unread(self, span: ReadableSpan) -> list[tuple[str, str]] | None:
        """The texts that nobody knows to be clean, with their attributes' names; None if any needs a closer look."""
        events: Sequence[Any] = span.events
        texts = {span.name, span.status.description or "", *(event.name for event in events)}
        unread = [("", text) for text in texts if ("", text) not in self._clean_texts]
        scanned = self._scanned(span)
        events = [event for event in events if event.attributes]  # a stream has one without for each chunk
        unread += (("", "".join(pieces)) for pieces in _pieces(events).values())
        for name, value in chain(*(as_dict(part.attributes).items() for part in (span, *events, *span.links))):
            if name in scanned or (
                isinstance(value, str) and len(value) <= _SHORT and (name, value) in self._clean_texts
            ):
                continue
            if not self._is_clean_name(name):
                return None
            if isinstance(value, (bool, int, float)) or name.startswith(_LEFT_ALONE):
                continue
            if not _is_flat(value):
                return None
            unread.append((name, value if isinstance(value, str) else "".join(cast(Sequence[str], value))))
        return unread

    def _scanned(self, span: ReadableSpan) -> AbstractSet[str]:
        """Return the names of attributes whose texts were scanned where the call was captured, for the same secrets."""
        clean = _clean.get()
        if clean is None or clean[0] != span.get_span_context() or clean[1].patterns != self._scrubber.patterns:
            return frozenset()
        return _SCANNED

    def _remember(self, clean: list[tuple[str, str]]) -> None:
        """Remember short texts with their names: most stand on every call, as its model and its parameters do."""
        if len(self._clean_texts) + len(clean) > _MAX_CLEAN:
            self._clean_texts = set()
        self._clean_texts.update(clean)

    def _judge_name(self, name: str) -> bool:
        """Whether an attribute of this name need not be looked at closely."""
        is_plain = name != SCRUBBED_CONTENT and secret_name(name) is None and not may_hold_prompt_ids(name)
        return is_plain and not self._scrubber.holds_secret(name)

    def _scrubbed(self, span: ReadableSpan) -> SpanParts | None:
        """Return the scrubbed parts of the span; None if nothing in it had to change."""
        parts, findings = SpanParts.of(span), _Findings()
        parts.resource, parts.scope = self._resource_and_scope(span)
        self._scrub(parts, findings)
        attributes = parts.attributes
        if findings.content or attributes.get(SCRUBBED_CONTENT) is True:
            parts.attributes = {
                **(without_tokens(attributes) if self._scrubber.alters else attributes),
                SCRUBBED_CONTENT: True,
            }
        elif self._scrubber.alters and spells_unread_prompt(attributes):
            parts.attributes = without_prompt_ids(attributes)
        if findings.count:
            parts.attributes[SCRUBBED] = findings.count + _earlier(attributes)
        shared = (span.resource, span.instrumentation_scope)
        is_same = not findings.count and parts.attributes is attributes and (parts.resource, parts.scope) == shared
        return None if is_same else parts

    def _scrub(self, parts: SpanParts, findings: _Findings) -> None:
        text = partial(self._scrubber.text, hits=findings)
        parts.name = text(parts.name)
        parts.description = None if parts.description is None else text(parts.description)
        parts.links = [self._link(link, findings) if link.attributes else link for link in parts.links]
        parts.events = self._events(parts.events, findings)
        parts.attributes = self._attributes(parts.attributes, findings)

    def _attributes(self, attributes: Attributes, findings: _Findings, *, by_name: bool = True) -> dict[str, Value]:
        """Return the scrubbed attributes of a span, event, link, resource or scope."""
        kept: dict[str, Value] = {}
        for name, value in attributes.items():
            before, judged = findings.count, by_name and not name.startswith(SPOKEN)
            if not name.startswith(_LEFT_ALONE):
                value = self._scrubber.value(name, value, findings, by_name=judged)  # noqa: PLW2901 # a number is itself
            if findings.count > before:
                findings.content = findings.content or self._is_content(name, attributes[name])
            kept[name if self._is_clean_name(name) else self._scrubber.text(name, findings)] = value
        return kept

    def _is_content(self, name: str, value: Value) -> bool:
        """Whether an attribute in which a secret is holds it in what a model reads or writes. Errors only quote it."""
        if name in _PARAMETERS:
            return self._scrubber.holds_secret(_tools(value))
        return names_content(name) and not name.startswith(_ERROR)

    def _events(self, events: Sequence[Any], findings: _Findings) -> list[Any]:
        """Return the scrubbed events. Events of one name may be chunks of a stream that hold a secret only together."""
        split = {key for key, texts in _pieces(events).items() if self._scrubber.split_secret(texts)}
        findings.count += len(split)
        findings.content = findings.content or bool(split)
        return [self._event(event, split if self._scrubber.alters else set(), findings) for event in events]

    def _event(self, event: Any, split: AbstractSet[tuple[str, str]], findings: _Findings) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
        before, attributes = findings.count, as_dict(event.attributes)
        gone = {name: replacement(PIECES) for name in attributes if (event.name, name) in split}
        name = self._scrubber.text(event.name, findings)
        kept = self._attributes({**attributes, **gone}, findings, by_name=not name.startswith(SPOKEN))
        findings.content = findings.content or (findings.count > before and name.startswith(MESSAGE_EVENT))
        return event if findings.count == before and not gone else event_with(event, name=name, attributes=kept)

    def _link(self, link: Any, findings: _Findings) -> Any:  # noqa: ANN401 # the API's Link
        return link_with(link, self._attributes(as_dict(link.attributes), findings))

    def _resource_and_scope(self, span: ReadableSpan) -> tuple[Resource, InstrumentationScope | None]:
        """Return the scrubbed resource and scope of a span; the same objects if they hold no secret."""
        scope = span.instrumentation_scope
        return self._once(span.resource, self._resource), None if scope is None else self._once(scope, self._scope)

    def _once(self, shared: Any, scrub: Callable[[Any], Any]) -> Any:  # noqa: ANN401 # a resource or a scope
        cached = self._shared.get(id(shared))
        if cached is None or cached[0] is not shared:
            if len(self._shared) >= _MAX_SHARED:
                self._shared.clear()
            cached = self._shared[id(shared)] = (shared, scrub(shared))
        return cached[1]

    def _resource(self, resource: Resource) -> Resource:
        findings = _Findings()
        kept = self._attributes(resource.attributes, findings)
        return Resource({**kept, SCRUBBED: findings.count}, resource.schema_url) if findings.count else resource

    def _scope(self, scope: InstrumentationScope) -> InstrumentationScope:
        findings = _Findings()
        name, version = (self._scrubber.text(text or "", findings) for text in (scope.name, scope.version))
        kept = self._attributes(scope.attributes or {}, findings)
        return InstrumentationScope(name, version or None, scope.schema_url, kept) if findings.count else scope

    def _emptied(self, span: ReadableSpan) -> SpanParts:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # at 1, 2, 4, 8, …
            logger.warning("art-otel: %d spans could not be scrubbed and are left empty", self.failures, exc_info=True)
        return SpanParts.emptied(span, replacement("failed"), {SCRUBBED: 1, SCRUBBED_CONTENT: True})


def _pieces(events: Sequence[Any]) -> dict[tuple[str, str], list[str]]:
    """The texts of events by the name of the event and of the attribute."""
    pieces: dict[tuple[str, str], list[str]] = {}
    for event in events:
        for name, value in as_dict(event.attributes).items():
            if isinstance(value, str):
                pieces.setdefault((event.name, name), []).append(value)
    return pieces


def _is_flat(value: Value) -> bool:
    """Whether a value is a text or a list of texts."""
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in cast(list[Value], value))
    )


def _tools(parameters: Value) -> str:
    """The tools among the parameters of a request, which are in the prompt, as text."""
    try:
        fields: Value = json.loads(parameters) if isinstance(parameters, str) else parameters
    except (ValueError, RecursionError):
        return str(parameters)
    named = cast(dict[str, Value], fields) if isinstance(fields, dict) else {}
    return json.dumps([named.get(name) for name in _TOOLS], default=str)


def _earlier(attributes: Attributes) -> int:
    counted = attributes.get(SCRUBBED)
    return counted if isinstance(counted, int) else 0
