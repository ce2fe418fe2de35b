"""SpanRedaction: one pass over the parts of one span, counting what it replaces.

Invariant: every text of the span is read, in whatever it is nested; only the rollout's id, by which spans are brought
together, and packed tokens, which hold no text, are left alone. The count stands on the span, so that a call of which
something is missing says so.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from art_otel.attributes import METADATA_PREFIX, REDACTED, REDACTED_TOKENS, ROLLOUT_ID
from art_otel.spans import Attributes, Value
from art_otel.tracing.processing.span_parts import SpanParts, as_dict, event_with, link_with
from art_otel.tracing.redaction.content_names import names_content
from art_otel.tracing.redaction.secret_names import kind_of_attribute, kind_of_key
from art_otel.tracing.redaction.spelled import TOKENS, without_tokens
from art_otel.tracing.redaction.texts import Tally, Texts

LEFT_ALONE: Final = (ROLLOUT_ID, *TOKENS)

_MAX_DEPTH: Final = 24
"""As in a span's line; what is nested deeper is read as its repr."""

_EXCEPTION: Final = "exception"


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
            without = without_tokens(kept)
            if without != kept:
                kept = {**without, REDACTED_TOKENS: True}
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
            if kind is not None:
                read = self._secret(value, kind)
            elif holds_names(name, value):
                read = self._named(cast(str, value))
            else:
                read = self._value(value, _MAX_DEPTH)
            self.content = self.content or (self.tally.count > before and names_content(name))
            kept[self.name(name)] = read
        return kept

    def _named(self, text: str) -> str:
        """JSON whose keys are names as those of attributes are: what stands under a secret's name goes whole."""
        try:
            known = json.loads(text)
            kept = self._under_names(known)
        except (ValueError, RecursionError):
            return self.text(text)
        return text if kept == known else json.dumps(kept, ensure_ascii=False)

    def _under_names(self, value: Any) -> Any:  # noqa: ANN401 # any JSON
        if isinstance(value, dict):
            items = cast(dict[str, Any], value).items()
            return {self.name(key): self._under_name(key, inner) for key, inner in items}
        if isinstance(value, list):
            return [self._under_names(inner) for inner in cast(list[Any], value)]
        if isinstance(value, str):
            return self._named(value) if value.startswith(("{", "[")) else self.text(value)
        if value is None or isinstance(value, bool):
            return value
        written = json.dumps(value)
        kept = self.text(written)
        return value if kept == written else kept

    def _under_name(self, name: str, value: Any) -> Any:  # noqa: ANN401 # as above
        kind = kind_of_attribute(name)
        if kind is None or (kind == "token" and isinstance(value, dict)):
            return self._under_names(value)
        if isinstance(value, dict):
            return self._texts.replace(json.dumps(value, ensure_ascii=False), kind, self.tally)
        return self._secret(value, kind)

    def _event(self, event: Any) -> Any:  # noqa: ANN401 # the SDK's Event is deprecated as a name
        before = self.tally.count
        name, kept = self.text(event.name), self.attributes(as_dict(event.attributes))
        self.content = self.content or (self.tally.count > before and name != _EXCEPTION)
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
            return dict(
                self._entry(str(key), inner, depth - 1) for key, inner in cast(Mapping[Any, Value], value).items()
            )
        if isinstance(value, Sequence):
            return tuple(self._value(inner, depth - 1) for inner in cast(Sequence[Value], value))
        return value

    def _entry(self, key: str, value: Value, depth: int) -> tuple[str, Value]:
        kind = kind_of_key(key) if isinstance(value, str) else None
        return self.name(key), self._value(value, depth) if kind is None else self._secret(value, kind)

    def _secret(self, value: Value, kind: str) -> Value:
        """What is left of the value of an attribute whose name says that it is a secret. Counts of tokens are none."""
        if value is None or isinstance(value, bool) or (kind == "token" and isinstance(value, (int, float))):
            return value
        if isinstance(value, Mapping):
            return self._value(value, _MAX_DEPTH)
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return tuple(self._secret(inner, kind) for inner in cast(Sequence[Value], value))
        return self._texts.replace(value if isinstance(value, str) else str(value), kind, self.tally)


def holds_names(name: str, value: Value) -> bool:
    """Whether an attribute is JSON whose keys are the app's own names, as those of attributes are: its metadata."""
    return name.startswith(METADATA_PREFIX) and isinstance(value, str) and value.startswith(("{", "["))


def _earlier(given: Attributes) -> int:
    counted = given.get(REDACTED)
    return counted if isinstance(counted, int) else 0
