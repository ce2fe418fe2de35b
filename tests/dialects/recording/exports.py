"""Exports: OTLP's protobuf as the OTLP JSON that a collector's file exporter writes."""

import base64
from typing import Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_REQUESTS: Final = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
_IDS: Final = ("traceId", "spanId", "parentSpanId")


def as_json(signal: str, data: bytes) -> dict:
    """Decode an export request."""
    return _with_hex_ids(MessageToDict(_REQUESTS[signal].FromString(data), use_integers_for_enums=True))


def _with_hex_ids(value):  # JSON in, JSON out
    """Ids are hex in OTLP JSON, where protobuf's own JSON has base64."""
    if isinstance(value, list):
        return [_with_hex_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: base64.b64decode(one).hex() if name in _IDS else _with_hex_ids(one) for name, one in value.items()}
