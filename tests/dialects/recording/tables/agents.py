"""Other frameworks of agents."""

from typing import Final

from tests.dialects.recording.tables.row import ON_SPANS, Row, sdk

_STRANDS: Final = ("strands-agents[openai]", *sdk("1.45.1"))
_OI_STRANDS: Final = (*_STRANDS, "openinference-instrumentation-strands-agents")
_PYDANTIC: Final = ("pydantic-ai-slim[openai]==0.4.11", "openai==1.109.1", *sdk("1.35.0"))
_ADK: Final = ("google-adk", "litellm", "mcp", *sdk("1.44.0"))
_OI_ADK: Final = (*_ADK, "openinference-instrumentation-google-adk")
_OLD_ADK: Final = ("google-adk==1.10.0", "litellm==1.79.3", *sdk("1.37.0"))
_AUTOGEN: Final = ("autogen-agentchat", "autogen-ext[openai]", *sdk())
_OI_AUTOGEN: Final = (*_AUTOGEN, "openinference-instrumentation-autogen-agentchat")
_AGENTS: Final = ("openai-agents", *sdk())
_GENAI_AGENTS: Final = (*_AGENTS, "opentelemetry-instrumentation-genai-openai-agents")
_OI_AGENTS: Final = (*_AGENTS, "openinference-instrumentation-openai-agents")
_TRACELOOP_AGENTS: Final = (*_AGENTS, "opentelemetry-instrumentation-openai-agents")
_LOGFIRE_AGENTS: Final = (*_AGENTS, "logfire")
_CREWAI: Final = ("crewai", *sdk())
_OI_CREWAI: Final = (*_CREWAI, "openinference-instrumentation-crewai")
_TRACELOOP_CREWAI: Final = (*_CREWAI, "opentelemetry-instrumentation-crewai")
_SMOLAGENTS: Final = ("smolagents[openai]", *sdk())
_OI_SMOLAGENTS: Final = (*_SMOLAGENTS, "openinference-instrumentation-smolagents")
_GENAI_SMOLAGENTS: Final = (*_SMOLAGENTS, "opentelemetry-instrumentation-genai-smolagents")
_LLAMA: Final = ("llama-index-core", "llama-index-llms-openai-like", *sdk())
_OI_LLAMA: Final = (*_LLAMA, "openinference-instrumentation-llama-index")
_TRACELOOP_LLAMA: Final = (*_LLAMA, "opentelemetry-instrumentation-llamaindex")
_DSPY: Final = ("dspy", "openinference-instrumentation-dspy", *sdk())

_BY_OI_STRANDS: Final = "own openinference.instrumentation.strands_agents:StrandsAgentsToOpenInferenceProcessor bare"
_BY_OI_ADK: Final = "instrumentor openinference.instrumentation.google_adk:GoogleADKInstrumentor bare"
_BY_OI_AUTOGEN: Final = "instrumentor openinference.instrumentation.autogen_agentchat:AutogenAgentChatInstrumentor bare"
_BY_GENAI_AGENTS: Final = "instrumentor opentelemetry.instrumentation.genai.openai_agents:OpenAIAgentsInstrumentor bare"
_BY_OI_AGENTS: Final = "instrumentor openinference.instrumentation.openai_agents:OpenAIAgentsInstrumentor bare"
_BY_TRACELOOP_AGENTS: Final = "instrumentor opentelemetry.instrumentation.openai_agents:OpenAIAgentsInstrumentor bare"
_BY_OI_CREWAI: Final = "instrumentor openinference.instrumentation.crewai:CrewAIInstrumentor bare"
_BY_TRACELOOP_CREWAI: Final = "instrumentor opentelemetry.instrumentation.crewai:CrewAIInstrumentor bare"
_BY_OI_SMOLAGENTS: Final = "instrumentor openinference.instrumentation.smolagents:SmolagentsInstrumentor bare"
_BY_GENAI_SMOLAGENTS: Final = "instrumentor opentelemetry.instrumentation.genai.smolagents:SmolagentsInstrumentor bare"
_BY_OI_LLAMA: Final = "instrumentor openinference.instrumentation.llama_index:LlamaIndexInstrumentor bare"
_BY_TRACELOOP_LLAMA: Final = "instrumentor opentelemetry.instrumentation.llamaindex:LlamaIndexInstrumentor bare"
_BY_OI_DSPY: Final = "instrumentor openinference.instrumentation.dspy:DSPyInstrumentor bare"

_LATEST: Final = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}

AGENTS: Final[dict[str, Row]] = {
    "strands_native": Row(requires=_STRANDS, run=("strands_agent.py", "own bare"), settings=_LATEST),
    "strands_native_default": Row(requires=_STRANDS, run=("strands_agent.py", "own bare")),
    "strands_oi": Row(requires=_OI_STRANDS, run=("strands_agent.py", _BY_OI_STRANDS), settings=_LATEST),
    "pydantic04_attributes": Row(requires=_PYDANTIC, run=("pydantic_agent.py", "chat", "attributes")),
    "pydantic04_responses": Row(requires=_PYDANTIC, run=("pydantic_agent.py", "responses", "attributes")),
    "pydantic_ai_openai_voldlogs": Row(requires=_PYDANTIC, run=("pydantic_agent.py", "chat", "logs")),
    "adk_native": Row(requires=_ADK, run=("adk_agent.py", "litellm", "own bare"), settings=ON_SPANS),
    "adk_oi": Row(requires=_OI_ADK, run=("adk_agent.py", "litellm", _BY_OI_ADK), settings=ON_SPANS),
    "adk_native_v1": Row(requires=_OLD_ADK, run=("adk_agent.py", "litellm", "own bare")),
    "adk_native_v1_gemini": Row(requires=_OLD_ADK, run=("adk_agent.py", "gemini", "own bare")),
    "autogen_native": Row(requires=_AUTOGEN, run=("autogen_agent.py", "own bare")),
    "autogen_oi": Row(requires=_OI_AUTOGEN, run=("autogen_agent.py", _BY_OI_AUTOGEN)),
    "openai_agents_genai_chat": Row(
        requires=_GENAI_AGENTS, run=("openai_agent.py", "chat", _BY_GENAI_AGENTS), settings=ON_SPANS
    ),
    "openai_agents_genai_responses": Row(
        requires=_GENAI_AGENTS, run=("openai_agent.py", "responses", _BY_GENAI_AGENTS), settings=ON_SPANS
    ),
    "openai_agents_genai_rstream": Row(
        requires=_GENAI_AGENTS, run=("openai_agent.py", "rstream", _BY_GENAI_AGENTS), settings=ON_SPANS
    ),
    "openai_agents_oi_responses": Row(requires=_OI_AGENTS, run=("openai_agent.py", "responses", _BY_OI_AGENTS)),
    "openai_agents_oi_rstream": Row(requires=_OI_AGENTS, run=("openai_agent.py", "rstream", _BY_OI_AGENTS)),
    "openai_agents_traceloop_chat": Row(
        requires=_TRACELOOP_AGENTS, run=("openai_agent.py", "chat", _BY_TRACELOOP_AGENTS)
    ),
    "openai_agents_traceloop_stream": Row(
        requires=_TRACELOOP_AGENTS, run=("openai_agent.py", "stream", _BY_TRACELOOP_AGENTS)
    ),
    "openai_agents_logfire_chat": Row(
        requires=_LOGFIRE_AGENTS, run=("openai_agent.py", "chat", "logfire openai_agents")
    ),
    "openai_agents_logfire_stream": Row(
        requires=_LOGFIRE_AGENTS, run=("openai_agent.py", "stream", "logfire openai_agents")
    ),
    "openai_agents_logfire_rstream": Row(
        requires=_LOGFIRE_AGENTS, run=("openai_agent.py", "rstream", "logfire openai_agents")
    ),
    "crewai_oi": Row(requires=_OI_CREWAI, run=("crewai_agent.py", _BY_OI_CREWAI)),
    "crewai_traceloop": Row(requires=_TRACELOOP_CREWAI, run=("crewai_agent.py", _BY_TRACELOOP_CREWAI)),
    "smolagents_oi": Row(requires=_OI_SMOLAGENTS, run=("smolagents_agent.py", "sync", _BY_OI_SMOLAGENTS)),
    "smolagents_genai": Row(
        requires=_GENAI_SMOLAGENTS, run=("smolagents_agent.py", "sync", _BY_GENAI_SMOLAGENTS), settings=ON_SPANS
    ),
    "llama_oi": Row(requires=_OI_LLAMA, run=("llama_agent.py", _BY_OI_LLAMA)),
    "llama_traceloop": Row(requires=_TRACELOOP_LLAMA, run=("llama_agent.py", _BY_TRACELOOP_LLAMA)),
    "dspy_oi": Row(requires=_DSPY, run=("dspy_program.py", _BY_OI_DSPY)),
}
