"""AttributeReader: reads the attributes of one span, and collects the gaps in what they tell.

Invariant: nothing here raises for any content. A value that cannot be read whole is unknown, and a gap names its
attribute.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

import msgspec

from art_otel.calls import Gap, GapKind
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames, names_of
from art_otel.errors import ParseError
from art_otel.spans import Attributes, Value

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGE_LISTS: Final = frozenset({"messages", "input"})


class AttributeReader:
    """Reads the attributes of a span, event or log record. Of several names the first that has a value wins."""

    __slots__ = ("_gaps", "_names", "attributes")

    def __init__(self, attributes: Attributes, names: AttributeNames | None = None) -> None:
        self.attributes = attributes
        self._names = names
        self._gaps: dict[Gap, None] = {}

    @property
    def names(self) -> AttributeNames:
        """The names of the attributes."""
        if self._names is None:
            self._names = names_of(self.attributes)
        return self._names

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What of the content is not, or may not be, what was sent and sampled, in the order it was read."""
        return tuple(self._gaps)

    def gap(self, kind: GapKind, evidence: str, *, field: str = "call") -> None:
        """Record a gap in the content (see `calls.Gap`)."""
        self._gaps[Gap(kind=kind, field=field, evidence=evidence)] = None

    def add_gaps(self, other: "AttributeReader", but: Collection[GapKind] = ()) -> None:
        """Record the gaps that another reader of these attributes recorded, but for those of some kinds."""
        self._gaps |= {gap: None for gap in other.gaps if gap.kind not in but}

    def mark_invalid(self, name: str) -> None:
        """Record that the value of an attribute is not what its convention says."""
        self.gap("not understood", name, field=field_of(name))

    def mark_cut(self, name: str) -> None:
        """Record that the JSON of an attribute ends before its end."""
        self.gap("cut", name, field=field_of(name))

    def text(self, *names: str) -> str | None:
        """The first non-empty text among the attributes named."""
        for name in names:
            value = self.attributes.get(name)
            if value and isinstance(value, str):
                return value
        return None

    def integer(self, *names: str) -> int | None:
        """The first whole number among the attributes named."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None and (number := values.integer(value)) is not None:
                return number
        return None

    def flag(self, *names: str) -> bool | None:
        """The first boolean among the attributes named."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None and (boolean := values.flag(value)) is not None:
                return boolean
        return None

    def structured(self, name: str, *, may_be_text: bool = False) -> Value:
        """Decode an attribute that is JSON text, or return its structured value; None for other text.

        Text that begins as JSON and is none was cut off, unless it `may_be_text`.
        """
        value = self.attributes.get(name)
        if not isinstance(value, str):
            return value
        if not values.looks_like_json(value):
            return None
        try:
            decoded, whole = values.decode(value)
        except ParseError:
            if not may_be_text:
                self.mark_cut(name)
            return None
        if not whole:
            self.mark_cut(name)
        return decoded

    def json_safe(self, name: str) -> Value:
        """Decode an attribute to values that any JSON writer accepts; text that is no JSON stays text."""
        value = self.structured(name)
        if value is None:
            value = None if any(gap.evidence == name for gap in self._gaps) else self.attributes.get(name)
        return self.make_safe(name, value)

    def make_safe(self, name: str, value: Value) -> Value:
        """Make what attribute `name` holds safe for any JSON writer; None, and a gap, when it cannot be."""
        try:
            return values.json_safe(value)
        except ParseError:
            self.mark_invalid(name)
            return None

    def body(self, name: str, *, may_be_text: bool = False) -> dict[str, Value] | None:
        """Decode the JSON object that attribute `name` holds; lists of messages in it stay JSON (`msgspec.Raw`)."""
        value = self.attributes.get(name)
        if isinstance(value, str):
            try:
                fields = _RAW_OBJECT.decode(value)
                return {key: _decode_field(key, raw) for key, raw in fields.items()}
            except (ValueError, RecursionError):
                pass
        return values.mapping(self.structured(name, may_be_text=may_be_text))


_FIELDS: Final = (
    ("tools", re.compile(r"tools?\b(?!_call)|functions|tool_definitions|tool\.definitions")),
    ("tokens", re.compile(r"token|logprobs")),
    ("parameters", re.compile(r"parameters|metadata|extra|env_state|response_format|schema")),
    ("answer", re.compile(r"output|completion|response|choice|answer")),
    ("prompt", re.compile(r"input|prompt|request|system_instructions")),
)
"""The words in attributes' names by which they hold a field of a call; the first that fits."""


@lru_cache(maxsize=1024)
def field_of(name: str) -> str:
    """Return the field of a call (see `calls.Gap`) that an attribute holds, by the words in its name."""
    return next((field for field, words in _FIELDS if words.search(name)), "call")


def _decode_field(key: str, raw: msgspec.Raw) -> Value:
    return raw if key in _MESSAGE_LISTS and memoryview(raw)[:1].tobytes() == b"[" else msgspec.json.decode(raw)
