"""OTLP's enums: the kinds of spans and codes of statuses, by number as protobuf has them and by name as JSON may.

Source of the format: opentelemetry-proto, `trace.proto`, version 1.
"""

from typing import Final

from art_otel.spans import SpanKind, StatusCode

_KIND_NAMES: Final[tuple[SpanKind, ...]] = ("unspecified", "internal", "server", "client", "producer", "consumer")
SPAN_KINDS: Final[dict[int | str | None, SpanKind]] = {
    None: "unspecified",
    **dict(enumerate(_KIND_NAMES)),
    **{f"SPAN_KIND_{name.upper()}": name for name in _KIND_NAMES},
}
_STATUS_NAMES: Final[tuple[StatusCode, ...]] = ("unset", "ok", "error")
STATUS_CODES: Final[dict[int | str | None, StatusCode]] = {
    None: "unset",
    **dict(enumerate(_STATUS_NAMES)),
    **{f"STATUS_CODE_{name.upper()}": name for name in _STATUS_NAMES},
}
