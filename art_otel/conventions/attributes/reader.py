"""AttributeReader: attributes being read, and the names of those whose value could not be read whole.

Invariant: nothing here raises for any content. A value that is there but mark_invalid counts as unknown, and its
attribute's name stands in `cut`.
"""

from typing import Final

import msgspec

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames, names_of
from art_otel.conventions.bodies import messages
from art_otel.errors import ParseError
from art_otel.spans import Attributes, Value

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGE_LISTS: Final = frozenset({"messages", "input"})


class AttributeReader:
    """Attributes of a span, event or log record. The first of several names that has a value wins."""

    __slots__ = ("_cut", "_names", "attributes")

    def __init__(self, attributes: Attributes, names: AttributeNames | None = None) -> None:
        self.attributes = attributes
        self._names = names
        self._cut: dict[str, None] = {}

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

    def mark_invalid(self, name: str) -> None:
        """Note that the value of an attribute could not be read whole."""
        self._cut[name] = None

    def text(self, *names: str) -> str | None:
        """The first non-empty text."""
        for name in names:
            value = self.attributes.get(name)
            if value and isinstance(value, str):
                return value
        return None

    def integer(self, *names: str) -> int | None:
        """The first whole number."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None and (number := values.integer(value)) is not None:
                return number
        return None

    def flag(self, *names: str) -> bool | None:
        """The first boolean."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None and (boolean := values.flag(value)) is not None:
                return boolean
        return None

    def structured(self, name: str, *, may_be_text: bool = False) -> Value:
        """The value of an attribute that is JSON text or structured already; None for other text.

        What begins as JSON and is none was cut, unless it `may_be_text`.
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
        """As `structured`, in JSON values that any writer takes; other text stays text."""
        value = self.structured(name)
        if value is None:
            value = self.attributes.get(name) if name not in self._cut else None
        return self.kept(name, value)

    def kept(self, name: str, value: Value) -> Value:
        """A value found below attribute `name` in JSON values that any writer takes; None when it cannot be."""
        try:
            return values.json_safe(value)
        except ParseError:
            self.mark_invalid(name)
            return None

    def body(self, name: str, *, may_be_text: bool = False) -> dict[str, Value] | None:
        """The JSON object that attribute `name` holds; lists of messages in it stay JSON (`msgspec.Raw`)."""
        value = self.attributes.get(name)
        if isinstance(value, str):
            try:
                fields = _RAW_OBJECT.decode(value)
                return {key: _kept_as_json(key, raw) for key, raw in fields.items()}
            except (ValueError, RecursionError):
                pass
        return values.mapping(self.structured(name, may_be_text=may_be_text))

    def messages(self, name: str) -> tuple[Message, ...] | None:
        """The message list that attribute `name` holds; None for JSON that is no message list, which is not cut."""
        value = self.attributes.get(name)
        if value is None:
            return None
        try:
            if isinstance(value, str):
                parsed = messages.from_json(value)
                if parsed is not None:
                    return parsed
                value = self.structured(name)
            return messages.parse(value)
        except ParseError:
            return None


def _kept_as_json(key: str, raw: msgspec.Raw) -> Value:
    return raw if key in _MESSAGE_LISTS and memoryview(raw)[:1].tobytes() == b"[" else msgspec.json.decode(raw)
