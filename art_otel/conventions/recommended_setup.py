"""Recommended setup: what to install beside an instrumentor without LLM calls, and how to switch on its content.

Sources: test recordings, the instrumentors' documentation, docs/how-to/capture-content.md. Scopes are matched by
prefix; among capture switches the longest prefix counts.
"""

from typing import Final

from art_otel.conventions.roles import ANTHROPIC_SDK

_OPENAI: Final = "openinference-instrumentation-openai or opentelemetry-instrumentation-openai"
_LITELLM: Final = "openinference-instrumentation-litellm"
_CREWAI: Final = f"{_OPENAI}, for a model that CrewAI reaches by LiteLLM {_LITELLM}"
_SMOLAGENTS: Final = f"{_OPENAI}, for a LiteLLMModel {_LITELLM}"

_CLIENTS: Final = {
    "openinference.instrumentation.crewai": _CREWAI,
    "opentelemetry.instrumentation.crewai": _CREWAI,
    "opentelemetry.instrumentation.genai.crewai": _CREWAI,
    "crewai": _CREWAI,
    "autogen-core": _OPENAI,
    "autogen ": _OPENAI,
    "opentelemetry.instrumentation.genai.openai_agents": _OPENAI,
    "opentelemetry.instrumentation.genai.smolagents": _SMOLAGENTS,
}


def client_instrumentor(scope: str) -> str | None:
    """The client instrumentor to install beside this scope's instrumentor, if that records no LLM calls; else None.

    For a model of another vendor than OpenAI, install the instrumentor of that vendor's client.
    """
    return next((named for prefix, named in _CLIENTS.items() if scope.startswith(prefix)), None)


_SWITCHES: Final[dict[str, str]] = {
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
    """The environment variables with which the instrumentor of this scope records messages."""
    prefixes = [prefix for prefix in _SWITCHES if scope.startswith(prefix)]
    return _SWITCHES[max(prefixes, key=len)] if prefixes else "its own switch for message content"
