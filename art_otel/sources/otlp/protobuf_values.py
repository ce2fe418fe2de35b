"""OTLP protobuf's spelling of ids and values: bytes for ids, one set field a value."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Records, finite
from art_otel.sources.refusals import Losses, Site
from art_otel.spans import Value

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue


class ProtobufValues(Records):
    """Records of messages decoded from protobuf, which itself allows no deeper nesting than Python does."""

    def hex(self, raw: object) -> str:
        """As `Records.hex`."""
        return raw.hex() if isinstance(raw, bytes) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, losses: Losses) -> dict[str, Value]:
        """As `Records.attributes`."""
        messages = cast("Iterable[KeyValue]", pairs or ())
        flat: dict[str, Value] = {}
        for pair in messages:
            value = pair.value
            flat[pair.key] = value.string_value or self._value(value, (owner, pair.key), losses)
        return flat  # most are text, so no call for those

    def value(self, value: otlp.AnyValue | None, site: Site, losses: Losses) -> Value:
        """As `Records.value`."""
        return self._value(cast("AnyValue", value), site, losses)

    def _value(self, value: "AnyValue", site: Site, losses: Losses) -> Value:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return value.string_value
        if kind == "int_value":
            return value.int_value
        if kind == "double_value":
            return finite(value.double_value, site, losses)
        if kind == "bool_value":
            return value.bool_value
        if kind == "bytes_value":
            return value.bytes_value
        if kind == "array_value":
            return self._items(value.array_value, site, losses)
        if kind == "kvlist_value":
            return {pair.key: self._value(pair.value, site, losses) for pair in value.kvlist_value.values}
        return None

    def _items(self, array: "ArrayValue", site: Site, losses: Losses) -> list[Value]:
        numbers: list[Value] = [item.int_value for item in array.values]
        if 0 not in numbers:  # so each is a whole number, as most token ids are
            return numbers
        return [self._value(item, site, losses) for item in array.values]
