"""Callless recorders: instrumentors of frameworks that write no span for a call to a model, and what to add to them.

Source: what they recorded, measured. Scopes are matched by prefix.
"""

from typing import Final

_OPENAI: Final = "openinference-instrumentation-openai or opentelemetry-instrumentation-openai"
_LITELLM: Final = "openinference-instrumentation-litellm"
_CREWAI: Final = f"{_OPENAI}, for a model that CrewAI reaches by LiteLLM {_LITELLM}"
_SMOLAGENTS: Final = f"{_OPENAI}, for a LiteLLMModel {_LITELLM}"

_INSTRUMENTORS: Final = {
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
    """What to install beside the instrumentor of this scope, which leaves calls to that of the client; None if others.

    A model of another vendor needs the instrumentor of its client instead.
    """
    return next((named for prefix, named in _INSTRUMENTORS.items() if scope.startswith(prefix)), None)
