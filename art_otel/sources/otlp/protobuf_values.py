"""OTLP protobuf's ids and values: bytes for ids, one set field a value."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import SpanBuilder, finite
from art_otel.sources.refusals import DroppedFields, Site
from art_otel.spans import Value

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue


class ProtobufValues(SpanBuilder):
    """Builds records of messages decoded from protobuf, which itself allows no deeper nesting than Python does."""

    def hex(self, raw: object, digits: int) -> str:  # noqa: ARG002 # their length tells
        """Read an id, as `SpanBuilder.hex` asks."""
        return raw.hex() if isinstance(raw, bytes) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `SpanBuilder.attributes` asks."""
        messages = cast("Iterable[KeyValue]", pairs or ())
        flat: dict[str, Value] = {}
        for pair in messages:
            value = pair.value
            flat[pair.key] = value.string_value or self._value(value, (owner, pair.key), dropped)
        return flat  # most are text, so no call for those

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `SpanBuilder.value` asks."""
        return self._value(cast("AnyValue", value), site, dropped)

    def _value(self, value: "AnyValue", site: Site, dropped: DroppedFields) -> Value:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return value.string_value
        if kind == "int_value":
            return value.int_value
        if kind == "double_value":
            return finite(value.double_value, site, dropped)
        if kind == "bool_value":
            return value.bool_value
        if kind == "bytes_value":
            return value.bytes_value
        if kind == "array_value":
            return self._items(value.array_value, site, dropped)
        if kind == "kvlist_value":
            return {pair.key: self._value(pair.value, site, dropped) for pair in value.kvlist_value.values}
        return None

    def _items(self, array: "ArrayValue", site: Site, dropped: DroppedFields) -> list[Value]:
        numbers: list[Value] = [item.int_value for item in array.values]
        if 0 not in numbers:  # so each is a whole number, as most token ids are
            return numbers
        return [self._value(item, site, dropped) for item in array.values]
