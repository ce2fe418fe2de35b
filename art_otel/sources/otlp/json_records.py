"""OTLP JSON's ids and values: hex ids (base64 in what Tempo and Jaeger give), integers as text.

Invariant: as `SpanBuilder`.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

import binascii
import contextlib
from collections.abc import Iterable
from typing import Final

from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import SpanBuilder, finite
from art_otel.sources.refusals import DroppedFields, Refused, Site, attribute_path
from art_otel.spans import Value

_BASE64_LENGTHS: Final = frozenset({24, 22, 12, 11})
"""Characters of a trace id and a span id in base64, padded or not; in hex they have 32 and 16."""


class JsonSpanBuilder(SpanBuilder):
    """Builds records of messages decoded from JSON: hex ids and base64 bytes."""

    def hex(self, raw: object, digits: int) -> str:  # noqa: ARG002 # their length tells
        """Read an id, as `SpanBuilder.hex` asks."""
        return hex_id(raw) if isinstance(raw, str) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `SpanBuilder.attributes` asks."""
        flat: dict[str, Value] = {}
        for pair in pairs or ():
            value = pair.value
            if value is not None and (text := value.string_value) is not None:
                flat[pair.key] = text  # most are text or whole numbers, so no call for those, here and below
            elif value is not None and (number := value.int_value) is not None:
                flat[pair.key] = number
            else:
                flat[pair.key] = self._value(value, (owner, pair.key), dropped, 1)
        return flat

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `SpanBuilder.value` asks."""
        return value.string_value if value and value.string_value is not None else self._value(value, site, dropped, 1)

    def _value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields, depth: int) -> Value:
        """Read a value that is no text; `depth` is that of a list or dict standing here."""
        if value is None:
            return None
        if value.int_value is not None:
            return value.int_value
        if value.double_value is not None:
            return finite(value.double_value, site, dropped)
        if value.bool_value is not None:
            return value.bool_value
        if value.kvlist_value is not None:
            return self._dict(value.kvlist_value.values or (), site, dropped, depth)
        if value.array_value is not None:
            return self._list(value.array_value.values or (), site, dropped, depth)
        return None if value.bytes_value is None else _base64(value.bytes_value, site)

    def _dict(self, pairs: Iterable[otlp.KeyValue], site: Site, dropped: DroppedFields, depth: int) -> dict[str, Value]:
        self.check_depth(depth, site)
        flat: dict[str, Value] = {}
        for pair in pairs:
            value = pair.value
            if value is None or (text := value.string_value) is None:
                flat[pair.key] = self._value(value, site, dropped, depth + 1)
            else:
                flat[pair.key] = text
        return flat

    def _list(self, values: Iterable[otlp.AnyValue], site: Site, dropped: DroppedFields, depth: int) -> list[Value]:
        self.check_depth(depth, site)
        return [  # many are lists of token ids, so no call for whole numbers
            value.int_value
            if value.string_value is None and value.int_value is not None
            else self._item(value, site, dropped, depth + 1)
            for value in values
        ]

    def _item(self, value: otlp.AnyValue, site: Site, dropped: DroppedFields, depth: int) -> Value:
        text = value.string_value
        return self._value(value, site, dropped, depth) if text is None else text


def hex_id(text: str) -> str:
    """Write an id in lower-case hex. Protobuf's own JSON mapping writes base64, which its length tells."""
    if len(text) in _BASE64_LENGTHS:
        with contextlib.suppress(ValueError):
            return _bytes_of(text).hex()
    return text.lower()


def _base64(text: str, site: Site) -> bytes:
    try:
        return _bytes_of(text)
    except ValueError as error:
        raise Refused("bad field", attribute_path(site), f"bytesValue is not base64: {error}") from error


def _bytes_of(text: str) -> bytes:
    """Decode base64, standard or URL-safe, padded or not, as protobuf's JSON mapping allows. Raises ValueError."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
