"""OTLP/gRPC: the services that exporters call; needs the extra `grpc`.

Invariant: answers mean the same as those of OTLP/HTTP: INVALID_ARGUMENT no OTLP, UNAUTHENTICATED no token,
RESOURCE_EXHAUSTED (with a time to try again) and UNAVAILABLE send it again. Requests are decoded by our own reader, so
a bad span is quarantined alone, as over HTTP; gRPC's decoder would refuse the whole request.

Source of the protocol: https://opentelemetry.io/docs/specs/otlp/#otlpgrpc
"""

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from starlette.exceptions import HTTPException

from art_otel.errors import UsageError
from art_otel.http import Address, Bodies, Tls
from art_otel.receiver.export import Export, ExportRefusedError, Signal
from art_otel.receiver.ingest import Ingest, ReceiverMetrics, encode_response

# grpcio ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false

_SERVICES: Final[dict[str, Signal]] = {
    "opentelemetry.proto.collector.trace.v1.TraceService": "traces",
    "opentelemetry.proto.collector.logs.v1.LogsService": "logs",
}
_OVERLOADED: Final = 429
_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    _OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_STOP_SECONDS: Final = 5.0


class GrpcServer:
    """Serves OTLP/gRPC at `address`, over TLS where `tls` has its files. `port` is the port once it has started."""

    def __init__(
        self,
        ingest: Ingest,
        bodies: Bodies,
        metrics: ReceiverMetrics,
        address: Address,
        *,
        token: str | None,
        tls: Tls | None,
    ) -> None:
        self._ingest = ingest
        self._bodies = bodies
        self._metrics = metrics
        self._address = address
        self._token = None if token is None else f"Bearer {token}".encode()
        self._tls = tls
        self._server: Any = None
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises UsageError where the address cannot be used."""
        # gRPC itself refuses only requests far above the limit; those just above it are refused, and counted, here.
        most = 2 * self._bodies.limits.body_bytes
        # Without SO_REUSEPORT, a second server at the same port is an error instead of getting half of the requests.
        options = [("grpc.max_receive_message_length", most), ("grpc.so_reuseport", 0)]
        server = self._server = grpc.aio.server(options=options)
        for service, signal in _SERVICES.items():
            method = grpc.unary_unary_rpc_method_handler(self._export(signal))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
        try:
            if self._tls is None:
                self.port = server.add_insecure_port(str(self._address))
            else:
                self.port = server.add_secure_port(str(self._address), _credentials(self._tls))
        except (RuntimeError, OSError) as error:
            raise UsageError(f"cannot serve gRPC at {self._address}: {error}") from error
        await server.start()

    async def stop(self) -> None:
        """Answer the requests that have come, within 5 seconds, and stop."""
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)

    def _export(self, signal: Signal) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def export(request: bytes, context: Any) -> bytes:  # noqa: ANN401 # grpcio has no types
            try:
                self._check(request, context)
                with self._bodies.hold(request):
                    stored = await self._ingest.take(Export(body=request, signal=signal, encoding="protobuf"))
                    return encode_response(signal, stored)
            except ExportRefusedError as refused:
                status, why = refused.status, str(refused)
            except HTTPException as refused:
                status, why = refused.status_code, refused.detail
            self._metrics.refused(status, why)
            code = _CODES.get(status, grpc.StatusCode.INTERNAL)
            if status == _OVERLOADED:
                context.set_trailing_metadata((("grpc-status-details-bin", _try_again(why)),))
            return await context.abort(code, why)

        return export

    def _check(self, request: bytes, context: Any) -> None:  # noqa: ANN401 # as above
        """Raise ExportRefusedError for a request without the token, or one that is too large."""
        if self._token is not None and not self._has_token(context):
            raise ExportRefusedError(401, "send the metadata 'authorization: Bearer TOKEN'")
        most = self._bodies.limits.body_bytes
        if len(request) > most:
            raise ExportRefusedError(413, f"the request is larger than {most} bytes; send smaller batches")

    def _has_token(self, context: Any) -> bool:  # noqa: ANN401 # as above
        authorization = dict(context.invocation_metadata()).get("authorization", "")
        return self._token is not None and hmac.compare_digest(str(authorization).encode(), self._token)


def _credentials(tls: Tls) -> Any:  # noqa: ANN401 # grpcio has no types
    return grpc.ssl_server_credentials([(_pem(tls.key), _pem(tls.certificate))])


def _pem(path: Path) -> bytes:
    return path.read_bytes()


def _try_again(why: str) -> bytes:
    """The details that let an exporter send the request again: without them RESOURCE_EXHAUSTED forbids it."""
    status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message=why)
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=1)))
    return status.SerializeToString()
