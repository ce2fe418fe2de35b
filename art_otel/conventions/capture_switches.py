"""Capture switches: the settings that make each instrumentor record messages.

Source: the instrumentors' documentation and the measured facts in docs/how-to/capture-content.md. Scopes are matched by
prefix, the longest first.
"""

from collections.abc import Mapping
from typing import Final

ANTHROPIC_SDK: Final = "com.anthropic.sdk.python"
"""The scope of Anthropic's client, which traces itself."""

_SWITCHES: Final[Mapping[str, str]] = {
    ANTHROPIC_SDK: "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE=content",
    "opentelemetry.instrumentation.genai.": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    "opentelemetry.instrumentation.google_genai": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    "opentelemetry.instrumentation.openai_v2": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    "opentelemetry.util.genai": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    "opentelemetry.instrumentation.": "TRACELOOP_TRACE_CONTENT=true",
    "openinference.": "OPENINFERENCE_HIDE_INPUTS=false and OPENINFERENCE_HIDE_OUTPUTS=false",
}


def capture_switch(scope: str) -> str:
    """The environment variables that make the instrumentor of this scope record messages."""
    prefixes = [prefix for prefix in _SWITCHES if scope.startswith(prefix)]
    return _SWITCHES[max(prefixes, key=len)] if prefixes else "its own switch for message content"
