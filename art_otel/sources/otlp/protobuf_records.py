"""OTLP protobuf's spelling of ids and values: bytes for ids, one set field a value.

Invariant: a request decodes whole or not at all, as protobuf has it; then its records are decoded one by one.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from art_otel.sources.format import Reading, Record
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.protobuf_numbers import WholeNumbers
from art_otel.sources.otlp.records import Records, finite
from art_otel.sources.refusals import Losses, Refused, Site
from art_otel.spans import Value

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

MessageName: TypeAlias = Literal["TracesData", "LogsData", "Span", "LogRecord", "Resource", "InstrumentationScope"]


class _MessageType(Protocol):
    def FromString(self, data: bytes, /) -> object: ...  # noqa: N802 # protobuf's name


class ProtobufRecords(Records):
    """Records of messages decoded from protobuf."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._types, self._error = _message_types()
        self._numbers = WholeNumbers()

    def decode(self, data: bytes, name: MessageName) -> object:
        """One message. Raises Refused, with the reason "bad field" as protobuf gives none."""
        try:
            return self._types[name].FromString(data)
        except self._error as error:
            raise Refused("bad field", detail=str(error)) from error

    def spans(self, data: bytes, place: str) -> Iterator[Record] | None:
        """Every span of one request; None when it does not decode, or does not begin with a span that has started.

        Logs and metrics decode as traces too. But no time stands in them where that of a span stands.
        """
        try:
            batches = cast("otlp.Request", self.decode(data, "TracesData")).resource_spans or None
        except Refused:
            return None
        scoped = batches[0].scope_spans if batches else None
        spans = scoped[0].spans if scoped else None
        return self.traces(batches, place) if spans and spans[0].start_time_unix_nano else None

    def request(self, data: bytes, signal: Literal["traces", "logs"], place: str) -> Iterator[Record] | None:
        """Every record of one request; None when it does not decode."""
        try:
            if signal == "logs":
                logs = cast("otlp.Request", self.decode(data, "LogsData"))
                return self.logs(logs.resource_logs or None, place)
            traces = cast("otlp.Request", self.decode(data, "TracesData"))
            return self.traces(traces.resource_spans or None, place)
        except Refused:
            return None

    def hex(self, raw: object) -> str:
        """As `Records.hex`."""
        return raw.hex() if isinstance(raw, bytes) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, losses: Losses) -> dict[str, Value]:
        """As `Records.attributes`."""
        messages = cast("Iterable[KeyValue]", pairs or ())
        flat: dict[str, Value] = {}
        for pair in messages:
            value = pair.value
            flat[pair.key] = value.string_value or self._value(value, (owner, pair.key), losses, 0)
        return flat  # most are text, so no call for those

    def value(self, value: otlp.AnyValue | None, site: Site, losses: Losses) -> Value:
        """As `Records.value`."""
        return self._value(cast("AnyValue", value), site, losses, 0)

    def _value(self, value: "AnyValue", site: Site, losses: Losses, depth: int) -> Value:
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
            self.check_depth(depth + 1, site)
            numbers = self._numbers.read(value.array_value)
            if numbers is not None:
                return numbers
            return [self._value(item, site, losses, depth + 1) for item in value.array_value.values]
        if kind == "kvlist_value":
            self.check_depth(depth + 1, site)
            return {pair.key: self._value(pair.value, site, losses, depth + 1) for pair in value.kvlist_value.values}
        return None


def _message_types() -> tuple[dict[MessageName, _MessageType], type[Exception]]:
    """The message types and the error that decoding raises. Imported here: only protobuf dumps need them."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from opentelemetry.proto.common.v1 import common_pb2  # noqa: PLC0415
    from opentelemetry.proto.logs.v1 import logs_pb2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # it comes without
    from opentelemetry.proto.resource.v1 import resource_pb2  # noqa: PLC0415
    from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: PLC0415

    types = {
        "TracesData": trace_pb2.TracesData,
        "LogsData": logs_pb2.LogsData,
        "Span": trace_pb2.Span,
        "LogRecord": logs_pb2.LogRecord,
        "Resource": resource_pb2.Resource,
        "InstrumentationScope": common_pb2.InstrumentationScope,
    }
    return cast("dict[MessageName, _MessageType]", types), cast("type[Exception]", DecodeError)
