"""OTLP/HTTP: the routes that exporters send to.

Invariant: the status says what became of a request: 200 written (with what was set aside), 400 no OTLP, 408 too slow,
413 too large, 415 a type that is no OTLP, 429 and 503 to be sent again.

Source of the protocol: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

import json
from collections.abc import Awaitable, Callable
from typing import Final

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2  # pyright: ignore[reportMissingTypeStubs] # it has none
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from art_otel.http import Bodies
from art_otel.receiver.ingest.export import Encoding, Export, ExportRefusedError, Signal, Stored
from art_otel.receiver.ingest.intake import Intake
from art_otel.receiver.metrics import Metrics

_ENCODINGS: Final[dict[str, Encoding]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_TYPES: Final = {encoding: kind for kind, encoding in _ENCODINGS.items()}


def otlp_routes(intake: Intake, bodies: Bodies, metrics: Metrics) -> list[Route]:
    """`POST /v1/traces` and `POST /v1/logs`."""

    def route(signal: Signal) -> Callable[[Request], Awaitable[Response]]:
        async def post(request: Request) -> Response:
            try:
                encoding = _encoding_of(request)
                async with bodies.read(request) as body:
                    compression = request.headers.get("content-encoding", "").strip().lower()
                    export = Export(body=body, signal=signal, encoding=encoding, compression=compression)
                    return _answer(signal, encoding, await intake.take(export))
            except HTTPException as refused:
                metrics.refused(refused.status_code)
                return _refusal(request, refused.status_code, refused.detail)
            except ExportRefusedError as refused:
                metrics.refused(refused.status)
                return _refusal(request, refused.status, str(refused))

        return post

    return [
        Route("/v1/traces", route("traces"), methods=["POST"]),
        Route("/v1/logs", route("logs"), methods=["POST"]),
    ]


def encode_response(signal: Signal, stored: Stored) -> bytes:
    """The answer in protobuf."""
    count = sum(stored.rejected.values())
    if signal == "traces":
        response = trace_service_pb2.ExportTraceServiceResponse()
        if count:
            response.partial_success.rejected_spans = count
    else:
        response = logs_service_pb2.ExportLogsServiceResponse()
        if count:
            response.partial_success.rejected_log_records = count
    if count:
        response.partial_success.error_message = stored.why
    return response.SerializeToString()


def _encoding_of(request: Request) -> Encoding:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _ENCODINGS:
        raise HTTPException(415, f"Content-Type {kind!r}: send {' or '.join(_ENCODINGS)}")
    return _ENCODINGS[kind]


def _answer(signal: Signal, encoding: Encoding, stored: Stored) -> Response:
    if encoding == "protobuf":
        return Response(encode_response(signal, stored), media_type=_TYPES[encoding])
    count = sum(stored.rejected.values())
    field = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
    partial = {"partialSuccess": {field: str(count), "errorMessage": stored.why}} if count else {}
    return Response(json.dumps(partial), media_type=_TYPES[encoding])


def _refusal(request: Request, status: int, why: str) -> Response:
    """An error as OTLP wants it: a google.rpc.Status in the encoding of the request."""
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if request.headers.get("content-type", "").startswith("application/x-protobuf"):
        text = why.encode()
        return Response(b"\x12" + _varint(len(text)) + text, status, headers, "application/x-protobuf")
    return Response(json.dumps({"message": why}), status, headers, "application/json")


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
