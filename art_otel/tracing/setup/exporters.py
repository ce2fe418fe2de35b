"""Exporters: which span exporters the OTEL_* variables ask for.

Invariant: as OTel's own set-up reads them, except that nothing is exported where no variable says so.

Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#exporter-selection
"""

from collections.abc import Mapping, Sequence
from typing import Final

GROUP: Final = "opentelemetry_traces_exporter"
OTLP: Final = "otlp"
_GRPC: Final = "otlp_proto_grpc"
_HTTP: Final = "otlp_proto_http"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_BY_PROTOCOL: Final = {"grpc": (_GRPC,), "http/protobuf": (_HTTP,)}


def exporter_names(names: Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the exporters; if `names` is None, OTLP when there is an endpoint for it."""
    if names is not None:
        return tuple(names)
    return (OTLP,) if any(environ.get(name) for name in _ENDPOINTS) else ()


def entry_points_of(name: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The entry points that can be the exporter, the wanted first. `otlp` without a protocol may be either."""
    if name != OTLP:
        return (name,)
    protocol = next((environ[variable].strip() for variable in _PROTOCOLS if environ.get(variable)), None)
    if protocol is None:
        return (_GRPC, _HTTP)
    return _BY_PROTOCOL.get(protocol, (f"otlp ({protocol})",))
