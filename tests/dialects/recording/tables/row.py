"""Row: how one recording is made.

Invariant: a row says all that decides a recording: packages, program, recorder, settings, and the day that pins what
the packages require themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DAY: Final = "2026-11-24"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`run` is a program of `programs/` with its arguments; an `.mjs` one runs in Node.

    No package is newer than `day`.
    """

    requires: tuple[str, ...]
    run: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    day: str = DAY


def sdk(version: str = "1.45.2") -> tuple[str, ...]:
    """OTel's SDK and its exporter."""
    return f"opentelemetry-sdk=={version}", f"opentelemetry-exporter-otlp-proto-http=={version}"


CONTENT: Final = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
ON_SPANS: Final = {
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
}
ANTHROPIC_CONTENT: Final = {"ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content"}
