"""CleanSpans: spans that hold nothing to redact, which are nearly all, told in a few microseconds.

Invariant: every text that `SpanRedaction` would read is looked at here, together and once; names of attributes, which
repeat, are remembered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from opentelemetry.sdk.trace import ReadableSpan

from art_otel.spans import Attributes, Value
from art_otel.tracing.processing.span_parts import as_dict
from art_otel.tracing.redaction.secret_names import kind_of_attribute
from art_otel.tracing.redaction.span_redaction import LEFT_ALONE
from art_otel.tracing.redaction.texts import Texts

_NAMES: Final = 4096
"""Names of attributes that are remembered."""

_TEXTLESS: Final = frozenset({str, bool, int, float, type(None)})
"""Types of values in which no text is, besides texts themselves."""


class CleanSpans:
    """Tells them by what `texts` takes for secrets."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._names: set[str] = set()

    def may_hold(self, span: ReadableSpan) -> bool:
        """Whether a span has to be looked at."""
        texts = [span.name, span.status.description or ""]
        for attributes in (span.attributes, *(part.attributes for part in (*span.events, *span.links))):
            given = as_dict(attributes)
            if not given.keys() <= self._names and not self._are_clean(given):
                return True
            _collect(given, texts)
        texts += [event.name for event in span.events]
        return self._texts.may_hold(texts)

    def _are_clean(self, names: Iterable[str]) -> bool:
        """Whether names of attributes tell of no secret; those that do not are remembered."""
        new = [name for name in names if name not in self._names]
        if any(kind_of_attribute(name) is not None for name in new) or self._texts.may_hold(new):
            return False
        if len(self._names) >= _NAMES:
            self._names = set()
        self._names.update(new)
        return True


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
