"""SpanRedaction: one pass over the parts of one span, counting what it replaces.

Invariant: every text of the span is read, in whatever it is nested; only the rollout's id, by which spans are brought
together, and packed tokens, which hold no text, are left alone. The count stands on the span, and where it was of what
a model read or wrote, that stands there too: such a completion is none that was sampled.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from art_otel.attributes import REDACTED, REDACTED_CONTENT, REQUEST_PARAMETERS, ROLLOUT_ID
from art_otel.spans import Attributes, Value
from art_otel.tracing.processing.span_parts import SpanParts, as_dict, event_with, link_with
from art_otel.tracing.redaction.content_names import names_content
from art_otel.tracing.redaction.secret_names import kind_of_attribute
from art_otel.tracing.redaction.spelled import TOKENS, without_tokens
from art_otel.tracing.redaction.texts import Tally, Texts

LEFT_ALONE: Final = (ROLLOUT_ID, *TOKENS)

_MAX_DEPTH: Final = 24
"""As in a span's line; what is nested deeper is read as its repr."""

_MESSAGE: Final = "gen_ai."
"""How events begin that are messages."""
_ERROR: Final = "exception."
_PARAMETERS: Final = frozenset({REQUEST_PARAMETERS, "llm.invocation_parameters"})


class SpanRedaction:
    """Replaces the secrets of one span. `content` says whether one was in what a model read or wrote."""

    def __init__(self, texts: Texts) -> None:
        self.tally = Tally()
        self.content = False
        self._texts = texts

    def apply(self, parts: SpanParts) -> None:
        """Replace the parts by what may be kept of them."""
        parts.name = self.text(parts.name)
        parts.description = None if parts.description is None else self.text(parts.description)
        parts.links = [link_with(link, self.attributes(as_dict(link.attributes))) for link in parts.links]
        parts.events = [self._event(event) for event in parts.events]
        kept = self.attributes(parts.attributes)
        if self.content:
            kept = {**without_tokens(kept), REDACTED_CONTENT: True}
        if self.tally.count:
            kept[REDACTED] = self.tally.count + _earlier(parts.attributes)
        parts.attributes = kept

    def text(self, text: str) -> str:
        """A text that people read."""
        return self._texts.redact(text, self.tally)

    def name(self, name: str) -> str:
        """A name that programs go by, for which the app's hook is not asked."""
        return self._texts.redact(name, self.tally, hooked=False)

    def attributes(self, given: Attributes) -> dict[str, Value]:
        """Attributes of a span, event, link, resource or scope."""
        kept: dict[str, Value] = {}
        for name, value in given.items():
            if name.startswith(LEFT_ALONE):
                kept[name] = value
                continue
            before = self.tally.count
            kind = kind_of_attribute(name)
            read = self._value(value, _MAX_DEPTH) if kind is None else self._secret(value, kind)
            if self.tally.count > before:
                self.content = self.content or _is_content(name) or _tools(name, value) != _tools(name, read)
            kept[self.name(name)] = read
        return kept

    def _event(self, event: Any) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
        before = self.tally.count
        name, kept = self.text(event.name), self.attributes(as_dict(event.attributes))
        self.content = self.content or (self.tally.count > before and name.startswith(_MESSAGE))
        return event_with(event, name=name, attributes=kept)

    def _value(self, value: Value, depth: int) -> Value:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.decode("latin-1")).encode("latin-1", "replace")
        if isinstance(value, (Mapping, Sequence)) and depth == 0:
            written = repr(cast(object, value))
            kept = self.text(written)
            return cast(Value, value) if kept == written else kept
        if isinstance(value, Mapping):
            entries = cast(Mapping[Any, Value], value).items()
            return {self.name(str(key)): self._value(inner, depth - 1) for key, inner in entries}
        if isinstance(value, Sequence):
            return tuple(self._value(inner, depth - 1) for inner in cast(Sequence[Value], value))
        return value

    def _secret(self, value: Value, kind: str) -> Value:
        """What is left of an attribute whose name says that it is a secret: texts, and lists of them, go whole."""
        if isinstance(value, str):
            return self._texts.replace(value, kind, self.tally)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return tuple(self._secret(inner, kind) for inner in cast(Sequence[Value], value))
        return self._value(value, _MAX_DEPTH)


def _is_content(name: str) -> bool:
    """Whether an attribute holds what a model read or wrote. Errors only quote it."""
    return names_content(name) and not name.startswith(_ERROR)


def _tools(name: str, value: Value) -> Value:
    """The tools among the parameters of a request, which are in the prompt."""
    if name not in _PARAMETERS or not isinstance(value, str):
        return None
    try:
        asked: Value = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return cast(dict[str, Value], asked).get("tools") if isinstance(asked, dict) else None


def _earlier(given: Attributes) -> int:
    counted = given.get(REDACTED)
    return counted if isinstance(counted, int) else 0
