"""Span lines: a finished span of the app becomes a line of OTLP JSON, as the spool and dumps hold it.

    a span ends ─► without_content, if that is asked for ─► SpanScrubber ─► OtlpJsonEncoder ─► the line
                               │                                │
                               └── SpanParts.put: what the app's own exporters get is changed, too

Invariant: every text of a rollout that leaves the app went through a RecordScrubber. If the scrubbing fails, the span
loses its contents. Ids, times, order and the counts of dropped values stay. Nothing raises into the app, with one
exception: if the SDK keeps the parts of a span under other names, `SpanParts.put` raises, and the span is not written.
A span outside of rollouts is exported as the app made it; if its trace becomes a rollout later, the span is scrubbed
for the spool.

Whatever values a span's attributes have, its line is one that any OTLP reader takes. The line of a start, which may be
all that a crash leaves of a span, holds what `start_of` keeps.

Source of the format: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/
"""

import base64
import json
import logging
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from art_otel.attributes import REQUEST_MESSAGES, RESPONSE_CHOICES, ROLLOUT_ID, SCRUBBED, SCRUBBED_CONTENT
from art_otel.conventions.content_names import CONTENT_NAMES, MESSAGE_LISTS, PARAMETERS, is_text, names_content
from art_otel.scrubbing import RecordScrubber, ScrubbedPart, Scrubber, replacement
from art_otel.spans import Attributes, JsonObject, Value

logger = logging.getLogger(__name__)

_NAMES: Final = ("_name", "_attributes", "_events", "_links", "_status", "_resource", "_instrumentation_scope")
"""The private fields in which the SDK keeps the parts of a finished span."""


@dataclass(kw_only=True, slots=True)
class SpanParts:
    """The parts of a span that may hold text. `events` are objects of the SDK; `description` is the status message."""

    name: str
    attributes: dict[str, Value]
    events: list[Any]
    links: list[Link]
    description: str | None
    resource: Resource
    scope: InstrumentationScope | None

    @classmethod
    def of(cls, span: ReadableSpan) -> "SpanParts":
        """Read the parts of a span, which may still run."""
        return cls(
            name=span.name,
            attributes=as_dict(span.attributes),
            events=list(span.events),
            links=list(span.links),
            description=span.status.description,
            resource=span.resource,
            scope=span.instrumentation_scope,
        )

    @classmethod
    def emptied(cls, span: ReadableSpan, name: str, attributes: Attributes) -> "SpanParts":
        """The parts of a span that could not be read: the given name and attributes, and the rollout's id."""
        rollout_id = (span.attributes or {}).get(ROLLOUT_ID)
        kept = {} if rollout_id is None else {ROLLOUT_ID: rollout_id}
        return cls(
            name=name,
            attributes={**attributes, **kept},
            events=[],
            links=[],
            description=None,
            resource=Resource({}),
            scope=None,
        )

    def put(self, span: ReadableSpan) -> None:
        """Write these parts to the finished span. Raises AttributeError where this version of the SDK lacks a field."""
        for name, part in self._rebuilt(span).items():
            if name not in vars(span):
                raise AttributeError(f"this version of the OpenTelemetry SDK has no {name} of a finished span")
            setattr(span, name, part)

    def _rebuilt(self, span: ReadableSpan) -> dict[str, Any]:
        parts = (
            self.name,
            bounded(self.attributes, span.dropped_attributes),
            _listed(self.events, span.dropped_events),
            _listed(self.links, span.dropped_links),
            span.status if self.description == span.status.description else self._status(span),
            self.resource,
            self.scope,
        )
        return dict(zip(_NAMES, parts, strict=True))

    def _status(self, span: ReadableSpan) -> Status:
        return Status(span.status.status_code, self.description)


def with_attributes(span: ReadableSpan, added: Attributes) -> ReadableSpan:
    """Add attributes to a finished span, in place."""
    parts = SpanParts.of(span)
    parts.attributes.update(added)
    parts.put(span)
    return span


def bounded(attributes: Attributes, dropped: int) -> BoundedAttributes:
    """The attributes in the SDK's type for a finished span, with the count of those that were dropped."""
    limited = BoundedAttributes(attributes=attributes, immutable=True)
    limited.dropped = dropped
    return limited


def event_with(event: Any, *, name: str, attributes: Attributes) -> Any:  # noqa: ANN401 # the class's name is deprecated
    """A copy of an event of the SDK, with another name and other attributes."""
    return type(event)(name=name, attributes=bounded(attributes, event.dropped_attributes), timestamp=event.timestamp)


def link_with(link: Link, attributes: Attributes) -> Link:
    """A copy of a link with other attributes."""
    return Link(link.context, bounded(attributes, link.dropped_attributes))


def _listed(entries: Sequence[Any], dropped: int) -> Sequence[Any]:
    listed = cast(Any, BoundedList).from_seq(None, entries)
    listed.dropped = dropped
    return listed


def as_dict(attributes: Attributes | None) -> dict[str, Value]:
    """A copy of the attributes as a dict."""
    # The SDK's mapping looks up each value by a Python method; its own `copy` is many times as fast as reading it.
    copy: Any = getattr(attributes, "copy", None)
    copied: Attributes = (attributes or {}) if copy is None else copy()
    # The type is a text: to build it would take longer than the copy.
    return cast("dict[str, Value]", copied) if type(copied) is dict else dict(copied)


_SCANNED: Final = frozenset(
    {REQUEST_MESSAGES, RESPONSE_CHOICES, "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions"}
)
"""The attributes whose texts come from the bodies of the call alone, as instrumentors of clients write them."""

_MAX_SHARED: Final = 256
"""How many scrubbed resources and scopes are remembered; a process has a few."""


_clean: Final[ContextVar[tuple[SpanContext, Scrubber] | None]] = ContextVar("art-otel-clean-texts", default=None)


@contextmanager
def texts_are_clean(context: SpanContext, scrubber: Scrubber) -> Generator[None]:
    """While the span with this context ends, tell `SpanScrubber` that the bodies of its call hold no secret.

    `scrubber` is the one that has read them; a `SpanScrubber` with other patterns reads the texts again.
    """
    token = _clean.set((context, scrubber))
    try:
        yield
    finally:
        _clean.reset(token)


class SpanScrubber:
    """Takes the secrets out of a finished span, in place, before any exporter reads the span.

    `failures` counts the spans that could not be scrubbed and were emptied.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self.failures = 0
        self._records = RecordScrubber(scrubber, CONTENT_NAMES)
        self._shared: dict[int, tuple[object, Any]] = {}

    def __call__(self, span: ReadableSpan) -> ReadableSpan:
        """Scrub the span in place, and return it."""
        try:
            parts = self._scrubbed(span)
        except Exception:  # noqa: BLE001 # whatever it was, the app must not notice and nothing may leak
            parts = self._emptied(span)
        if parts is not None:
            parts.put(span)
        return span

    def _scrubbed(self, span: ReadableSpan) -> SpanParts | None:
        """The scrubbed parts of the span; None if nothing in it had to change."""
        own_resource, own_scope = span.resource, span.instrumentation_scope
        resource = self._once(own_resource, self._resource)
        scope = None if own_scope is None else self._once(own_scope, self._scope)
        texts = [
            ScrubbedPart(span.name, as_dict(span.attributes)),
            ScrubbedPart(span.status.description or "", {}),
        ]
        if events := span.events:
            texts += [ScrubbedPart(event.name, as_dict(event.attributes), is_event=True) for event in events]
        if links := span.links:
            texts += [ScrubbedPart("", as_dict(link.attributes)) for link in links if link.attributes]
        scrubbed = self._records.scrub(texts, self._scanned(span))
        if scrubbed is None and resource is own_resource and scope is own_scope:
            return None
        parts = SpanParts.of(span)
        parts.resource, parts.scope = resource, scope
        return parts if scrubbed is None else _with_texts(parts, scrubbed)

    def _scanned(self, span: ReadableSpan) -> AbstractSet[str]:
        """The attributes that need no scan, because `texts_are_clean` says that the same patterns found nothing."""
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
    """Put scrubbed texts into the parts of a span, in the order in which `_scrubbed` gave them to the scrubber."""
    own, message, *rest = scrubbed
    parts.name, parts.attributes = own.text, dict(own.attributes)
    if parts.description is not None:
        parts.description = message.text
    texts = iter(rest)
    parts.events = [_scrubbed_event(event, next(texts)) for event in parts.events]
    parts.links = [link_with(link, next(texts).attributes) if link.attributes else link for link in parts.links]
    return parts


def _scrubbed_event(event: Any, part: ScrubbedPart) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
    return event_with(event, name=part.text, attributes=part.attributes)


MAX_DEPTH: Final = 24
"""Dicts and lists inside each other in one value; deeper ones become their repr. Receivers of protobuf stop at 100
nested messages, which are 32 dicts."""

_ENCODER: Final = msgspec.json.Encoder()


_IDS: Final = b'{"traceId":"%032x","spanId":"%016x",%b"startTimeUnixNano":"%d",'
_NO_IDS: Final = b'{"traceId":"","spanId":"",%b"startTimeUnixNano":"%d",'
_PARENT: Final = b'"parentSpanId":"%016x",'
_MAX_HEADS: Final = 256


class OtlpJsonEncoder:
    """Encodes spans of the SDK as lines of OTLP JSON. Each resource and scope is encoded once."""

    def __init__(self) -> None:
        self._heads: dict[tuple[int, int], tuple[object, bytes]] = {}

    def line(self, span: ReadableSpan) -> bytes:
        """The line of a span, with its newline; a span that has not ended has no end time."""
        context, parent = span.get_span_context(), span.parent
        rest = (b"" if parent is None else _PARENT % parent.span_id, span.start_time or 0)
        ids = _NO_IDS % rest if context is None else _IDS % (context.trace_id, context.span_id, *rest)
        head = self._head(span.resource, span.instrumentation_scope)
        return b"%b%b%b]}]}]}\n" % (head, ids, memoryview(_encode(_body(span)))[1:])

    def _head(self, resource: Resource, scope: InstrumentationScope | None) -> bytes:
        key = (id(resource), id(scope))
        shared, head = self._heads.get(key, (None, b""))
        if shared is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            encoded = (_encode({"attributes": _attributes(resource.attributes)}), _encode(_scope(scope)))
            head = b'{"resourceSpans":[{"resource":%b,"scopeSpans":[{"scope":%b,"spans":[' % encoded
            self._heads[key] = ((resource, scope), head)  # held: else a new object might get the same `id()`
        return head


def _encode(value: JsonObject) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
        return _ENCODER.encode(_writable(value))


def _writable(value: Any) -> Any:  # noqa: ANN401 # whatever stands in a span
    """The value with texts that UTF-8 can encode; lone surrogates become U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_writable(str(key)): _writable(inner) for key, inner in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [_writable(inner) for inner in cast(list[Any], value)]
    return value


def _body(span: ReadableSpan) -> JsonObject:
    written: JsonObject = {
        "name": span.name,
        "kind": span.kind.value + 1,
        "attributes": _attributes(span.attributes),
        "status": _status(span.status),
    }
    if span.end_time is not None:
        written["endTimeUnixNano"] = str(int(span.end_time))
    if events := span.events:
        written["events"] = [_event(event) for event in events]
    if links := span.links:
        written["links"] = [_link(link) for link in links]
    if count := span.dropped_attributes:
        written["droppedAttributesCount"] = count
    if count := span.dropped_events:
        written["droppedEventsCount"] = count
    if count := span.dropped_links:
        written["droppedLinksCount"] = count
    return written


def _scope(scope: InstrumentationScope | None) -> JsonObject:
    if scope is None:
        return {}
    return {"name": scope.name, "version": scope.version or ""}


def _status(status: Status) -> JsonObject:
    if status.status_code is StatusCode.UNSET:
        return {}
    written: JsonObject = {"code": status.status_code.value}
    if status.description:
        written["message"] = status.description
    return written


def _event(event: Any) -> JsonObject:  # noqa: ANN401 # the SDK's Event is deprecated as a name, not as a thing
    if not event.attributes and not event.dropped_attributes:
        return {"timeUnixNano": str(event.timestamp), "name": event.name, "attributes": []}
    dropped = event.dropped_attributes
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": _attributes(event.attributes),
        **({"droppedAttributesCount": dropped} if dropped else {}),
    }


def _link(link: Any) -> JsonObject:  # noqa: ANN401 # as _event
    return {
        "traceId": f"{link.context.trace_id:032x}",
        "spanId": f"{link.context.span_id:016x}",
        "attributes": _attributes(link.attributes),
    }


def _attributes(attributes: Mapping[str, Any] | None) -> list[JsonObject]:
    return [
        {"key": name, "value": {"stringValue": value} if type(value) is str else _value(value, MAX_DEPTH)}
        for name, value in as_dict(attributes).items()
    ]


def _value(value: Any, depth: int) -> JsonObject:  # noqa: ANN401 # whatever stands in a span
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _not_finite(value)}
    if isinstance(value, str):
        return {"stringValue": str(value)}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if depth == 0:
        return {"stringValue": repr(value)}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(cast(Mapping[Any, Any], value).items(), depth - 1)}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_value(inner, depth - 1) for inner in cast(Sequence[Any], value)]}}
    return {"stringValue": str(value)}


def _pairs(pairs: Iterable[tuple[Any, Any]], depth: int) -> list[JsonObject]:
    return [{"key": str(name), "value": _value(value, depth)} for name, value in pairs]


def _not_finite(value: float) -> str:
    """Spell a number that is not finite as protobuf's JSON mapping does."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_START_ATTRIBUTES: Final = (
    *("art.rollout.", "art.group.", "art.split", "art.training.", "art.policy.", "art.step.", "art.metadata."),
    "art.untrained",
    *("gen_ai.operation.name", "gen_ai.request.model", "openinference.span.kind", "llm.request.type"),
)


def start_of(span: Span) -> ReadableSpan:
    """The part of a running span that is recorded: its name, ids, time, and the attributes that say what it is.

    Prompts, which instrumentors set at the start, are left out: the line of the ended span has them.
    """
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes={
            name: value for name, value in as_dict(span.attributes).items() if name.startswith(_START_ATTRIBUTES)
        },
        kind=span.kind,
        start_time=span.start_time,
        instrumentation_scope=span.instrumentation_scope,
    )


# Without content a span loses all that was said to a model and by it: messages, tools, bodies, tokens, and the messages
# of errors, which quote them. What stays: which model was called when, with which numbers, how the call finished, and
# the attributes of the app itself (`art.metadata.*`, `art.extra.*`, `art.log`).
_KEPT_TEXTS: Final = frozenset({"model", "previous_response_id", "reasoning_effort", "service_tier"})
"""Parameters of a request that are text and never quote what was said."""

_ALWAYS: Final = {"USE_OTEL_LITELLM_REQUEST_SPAN": "true"}
"""Without it LiteLLM's callback writes every call onto the current span, so that the next call overwrites the one
before, and its status."""

_ON: Final = {
    **_ALWAYS,
    "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",
    "OPENINFERENCE_HIDE_INPUTS": "false",
    "OPENINFERENCE_HIDE_OUTPUTS": "false",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "TRACELOOP_TRACE_CONTENT": "true",
}
_OFF: Final = {
    **_ALWAYS,
    "OPENINFERENCE_HIDE_INPUTS": "true",
    "OPENINFERENCE_HIDE_OUTPUTS": "true",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT",
    "TRACELOOP_TRACE_CONTENT": "false",
}


def content_environment(capture: bool) -> dict[str, str]:  # noqa: FBT001 # the one thing it is told
    """The environment variables by which the instrumentors record whole calls (`capture`), or calls without content.

    The caller sets those that the app has not set. docs/how-to/capture-content.md says which instrumentor reads which.
    """
    return dict(_ON if capture else _OFF)


def without_content(span: ReadableSpan) -> ReadableSpan:
    """Take the content out of a finished span, in place."""
    _structure(span).put(span)
    return span


def _structure(span: ReadableSpan) -> SpanParts:
    """The parts of the span without content. A span that cannot be read loses everything but its name."""
    try:
        return _read(span)
    except Exception:  # whatever it was, nothing may leak
        logger.warning("art-otel: a span could not be read, its contents are left out", exc_info=True)
        return SpanParts.emptied(span, span.name, {})


def _read(span: ReadableSpan) -> SpanParts:
    parts = SpanParts.of(span)
    parts.attributes = _kept(parts.attributes)
    parts.events = [_event_without_content(event) for event in parts.events if event.name not in MESSAGE_LISTS]
    parts.links = [link_with(link, _kept(as_dict(link.attributes))) for link in parts.links]
    parts.description = None
    return parts


def _event_without_content(event: Any) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
    return event_with(event, name=event.name, attributes=_kept(as_dict(event.attributes)))


def _kept(unfiltered: Attributes) -> dict[str, Value]:
    kept: dict[str, Value] = {}
    for name, value in unfiltered.items():
        if name in PARAMETERS:
            kept[name] = _numbers_of(value)
        elif not (names_content(name) and is_text(value)):
            kept[name] = value
    return kept


def _numbers_of(parameters: Value) -> str:
    """The parameters of a request that are numbers or harmless texts, as JSON; `{}` where they cannot be read.

    For example `{"temperature": 1, "stop": "yes"}` becomes `{"temperature": 1}`.
    """
    try:
        decoded: Value = json.loads(parameters) if isinstance(parameters, str) else parameters
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        return "{}"
    named = cast(dict[str, Value], decoded).items()
    return json.dumps({name: value for name, value in named if _is_number(value) or name in _KEPT_TEXTS})


def _is_number(value: Value) -> bool:
    return value is None or isinstance(value, (bool, int, float))
