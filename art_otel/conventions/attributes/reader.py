"""AttributeReader: reads the attributes of one span, and collects the names of those it could not read whole.

Invariant: nothing here raises for any content. A value that cannot be read whole is unknown, and its
attribute is named in `cut`.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames, names_of
from art_otel.errors import ParseError
from art_otel.spans import Attributes, Value

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGE_LISTS: Final = frozenset({"messages", "input"})


class AttributeReader:
    """Reads the attributes of a span, event or log record. Of several names the first that has a value wins."""

    __slots__ = ("_cut", "_doubts", "_names", "attributes")

    def __init__(self, attributes: Attributes, names: AttributeNames | None = None) -> None:
        self.attributes = attributes
        self._names = names
        self._cut: dict[str, None] = {}
        self._doubts: tuple[str, ...] = ()

    @property
    def names(self) -> AttributeNames:
        """The names of the attributes."""
        if self._names is None:
            self._names = names_of(self.attributes)
        return self._names

    @property
    def cut(self) -> tuple[str, ...]:
        """The names of attributes that could not be read whole, in the order they were read."""
        return tuple(self._cut)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why what was read may be less or other than what was sent and sampled."""
        return self._doubts

    def doubt(self, reason: str) -> None:
        """Record that what an attribute shows may be less or other than what was sent and sampled."""
        if reason not in self._doubts:
            self._doubts = (*self._doubts, reason)

    def add_losses(self, other: "AttributeReader", but: Collection[str] = ()) -> None:
        """Record what another reader of these attributes could not read whole, and its doubts but for some."""
        self._cut |= dict.fromkeys(other.cut)
        for reason in other.doubts:
            if reason not in but:
                self.doubt(reason)

    def mark_invalid(self, name: str) -> None:
        """Record that the value of an attribute could not be read whole."""
        self._cut[name] = None

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
                self.mark_invalid(name)
            return None
        if not whole:
            self.mark_invalid(name)
        return decoded

    def json_safe(self, name: str) -> Value:
        """Decode an attribute to values that any JSON writer accepts; text that is no JSON stays text."""
        value = self.structured(name)
        if value is None:
            value = self.attributes.get(name) if name not in self._cut else None
        return self.make_safe(name, value)

    def make_safe(self, name: str, value: Value) -> Value:
        """Make what attribute `name` holds safe for any JSON writer; None, and `name` cut, when it cannot be."""
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


def _decode_field(key: str, raw: msgspec.Raw) -> Value:
    return raw if key in _MESSAGE_LISTS and memoryview(raw)[:1].tobytes() == b"[" else msgspec.json.decode(raw)
