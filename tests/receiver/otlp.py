"""OTLP requests as exporters send them: JSON requests of tests in every encoding, over HTTP and gRPC."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import zstandard
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.dumps import Request
from tests.sources.requests import to_protobuf

PROTOBUF, JSON = "application/x-protobuf", "application/json"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda body: body,
    "gzip": gzip.compress,
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
}
SERVICES = {
    "traces": ("opentelemetry.proto.collector.trace.v1.TraceService", trace_service_pb2.ExportTraceServiceResponse),
    "logs": ("opentelemetry.proto.collector.logs.v1.LogsService", logs_service_pb2.ExportLogsServiceResponse),
}
_client = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0), verify=False)
"""One for all: each new one reads the certificates of the system."""


def by_signal(request: Request) -> list[tuple[str, Request]]:
    """A request of traces and one of logs, as far as there are any."""
    names = (("traces", "resourceSpans"), ("logs", "resourceLogs"))
    return [(signal, {name: request[name]}) for signal, name in names if name in request]


def as_body(request: Request, kind: str) -> bytes:
    return to_protobuf(request) if kind == PROTOBUF else json.dumps(request).encode()


def post(
    url: str, body: bytes, kind: str = PROTOBUF, signal: str = "traces", *, encoding: str = "", **headers: str
) -> httpx.Response:
    """Send a body as it is."""
    sent = {"content-type": kind, **({"content-encoding": encoding} if encoding else {}), **headers}
    return _client.post(f"{url}/v1/{signal}", content=body, headers=sent)


def send(url: str, request: Request, kind: str = PROTOBUF, encoding: str = "") -> None:
    """Send a request as an exporter does; it has to be acknowledged, without anything set aside."""
    for signal, part in by_signal(request):
        answer = post(url, COMPRESS[encoding](as_body(part, kind)), kind, signal, encoding=encoding)
        assert (answer.status_code, rejected(answer, kind, signal)) == (200, 0), answer.content
        assert answer.headers["content-type"] == kind


def rejected(answer: httpx.Response, kind: str = PROTOBUF, signal: str = "traces") -> int:
    """How many records an answer says were set aside."""
    if kind == JSON:
        partial = answer.json().get("partialSuccess", {})
        return int(partial.get("rejectedSpans" if signal == "traces" else "rejectedLogRecords", 0))
    if signal == "traces":
        return trace_service_pb2.ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans
    return logs_service_pb2.ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records


def send_grpc(channel: grpc.Channel, request: Request) -> None:
    """As `send`, over gRPC with gzip."""
    for signal, part in by_signal(request):
        answer = export(channel, to_protobuf(part), signal, compression=grpc.Compression.Gzip)
        assert not answer.HasField("partial_success")


def export(channel: grpc.Channel, body: bytes, signal: str = "traces", **options: Any) -> Any:
    """Send a body as it is over gRPC."""
    service, response = SERVICES[signal]
    method = channel.unary_unary(f"/{service}/Export", response_deserializer=response.FromString)
    return method(body, timeout=60, **options)
