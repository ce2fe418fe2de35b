"""The harder conversation under the newest release of each recorder.

`harder_` stands before the name that the recording of the weather has, or would have.
"""

from collections.abc import Mapping
from typing import Final

from tests.dialects.recording.tables.row import ANTHROPIC_CONTENT, CONTENT, ON_SPANS, Row, sdk

_OPENAI: Final = ("openai", *sdk())
_ANTHROPIC: Final = ("anthropic", *sdk())
_LANGCHAIN: Final = (
    "langchain",
    "langgraph",
    "langchain-openai",
    "langchain-anthropic",
    *sdk(),
)
_LITELLM: Final = ("litellm", "mcp", *sdk())
_AGENTS: Final = ("openai-agents", *sdk())
_GOOGLE: Final = ("google-genai", *sdk())
_BEDROCK: Final = ("boto3", *sdk())
_PYDANTIC: Final = ("pydantic-ai-slim[openai,anthropic]", *sdk())
_STRANDS: Final = ("strands-agents[openai]", *sdk("1.45.1"))
_SMOLAGENTS: Final = ("smolagents[openai]", *sdk())
_ADK: Final = ("google-adk", "litellm", "mcp", *sdk("1.44.0"))
_AUTOGEN: Final = ("autogen-agentchat", "autogen-ext[openai]", *sdk())
_CREWAI: Final = ("crewai", *sdk())
_LLAMA: Final = ("llama-index-core", "llama-index-llms-openai-like", *sdk())

_NODE: Final = (
    "@opentelemetry/api",
    "@opentelemetry/sdk-trace-node",
    "@opentelemetry/exporter-trace-otlp-http",
)
_AI_7: Final = ("ai", "@ai-sdk/otel", "@ai-sdk/openai", "@ai-sdk/anthropic", *_NODE)
_AI_6: Final = ("ai@6.0.326", "@ai-sdk/openai-compatible@2.0.92", "@ai-sdk/anthropic@3.0.140", *_NODE)
_MASTRA: Final = (
    "@mastra/core",
    "@mastra/observability",
    "@mastra/otel-exporter",
    "@ai-sdk/openai-compatible",
    "zod@4.1.12",
    "@opentelemetry/exporter-trace-otlp-http",
)

_CHAT: Final = ("chat", "stream", "responses", "rstream")
_LANGGRAPH: Final = ("openai", "stream", "responses", "rstream", "anthropic")
_LATEST: Final = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
_CALLBACK: Final = ON_SPANS | {"USE_OTEL_LITELLM_REQUEST_SPAN": "true"}


def _rows(
    name: str,
    program: str,
    modes: tuple[str, ...],
    how: str,
    *requires: str,
    settings: Mapping[str, str] = {},
) -> dict[str, Row]:
    """A row a mode of a program; without modes, one."""
    kept = {"requires": requires, "settings": {**settings, "TASK": "harder"}}
    if not modes:
        return {f"harder_{name}": Row(run=(program, how), **kept)}
    return {f"harder_{name}_{mode}": Row(run=(program, mode, how), **kept) for mode in modes}


def _instrumentor(name: str) -> str:
    return f"instrumentor {name}"


HARDER: Final[dict[str, Row]] = {
    **_rows(
        "openai_oi",
        "openai_client.py",
        _CHAT,
        _instrumentor("openinference.instrumentation.openai:OpenAIInstrumentor"),
        "openinference-instrumentation-openai",
        *_OPENAI,
    ),
    **_rows(
        "openai_traceloop",
        "openai_client.py",
        _CHAT,
        _instrumentor("opentelemetry.instrumentation.openai:OpenAIInstrumentor"),
        "opentelemetry-instrumentation-openai",
        *_OPENAI,
    ),
    **_rows(
        "openai_genai",
        "openai_client.py",
        _CHAT,
        _instrumentor("opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor"),
        "opentelemetry-instrumentation-genai-openai",
        *_OPENAI,
        settings=ON_SPANS,
    ),
    **_rows(
        "openai_v2",
        "openai_client.py",
        ("chat", "stream"),
        _instrumentor("opentelemetry.instrumentation.openai_v2:OpenAIInstrumentor"),
        "opentelemetry-instrumentation-openai-v2",
        "opentelemetry-util-genai==0.4b0",
        "httpx==0.28.1",
        *_OPENAI,
        settings=ON_SPANS,
    ),
    **_rows("langfuse", "openai_client.py", _CHAT, "langfuse openai", "langfuse", *_OPENAI),
    **_rows("langsmith", "openai_client.py", _CHAT, "langsmith openai", "langsmith", *_OPENAI),
    **_rows("logfire", "openai_client.py", _CHAT, "logfire openai", "logfire", *_OPENAI),
    **_rows("logfire_v6", "openai_client.py", _CHAT, "logfire openai", "logfire==6.0.0b8", *_OPENAI),
    **_rows("mlflow", "openai_client.py", _CHAT, "mlflow openai app", "mlflow", *_OPENAI),
    **_rows("openlit_145", "openai_client.py", ("chat", "stream"), "openlit", "openlit", "openai==2.54.0"),
    **_rows(
        "anthropic_native",
        "anthropic_client.py",
        ("sync", "thinking", "helper"),
        "own",
        *_ANTHROPIC,
        settings=ANTHROPIC_CONTENT,
    ),
    **_rows(
        "anthropic_oi",
        "anthropic_client.py",
        ("sync", "thinking", "stream", "helper"),
        _instrumentor("openinference.instrumentation.anthropic:AnthropicInstrumentor"),
        "openinference-instrumentation-anthropic",
        *_ANTHROPIC,
    ),
    **_rows(
        "anthropic_traceloop",
        "anthropic_client.py",
        ("sync", "thinking", "stream", "helper"),
        _instrumentor("opentelemetry.instrumentation.anthropic:AnthropicInstrumentor"),
        "opentelemetry-instrumentation-anthropic",
        *_ANTHROPIC,
    ),
    **_rows(
        "anthropic_genai",
        "anthropic_client.py",
        ("sync", "thinking", "stream", "helper"),
        _instrumentor("opentelemetry.instrumentation.genai.anthropic:AnthropicInstrumentor"),
        "opentelemetry-instrumentation-genai-anthropic",
        *_ANTHROPIC,
        settings=ON_SPANS,
    ),
    **_rows(
        "logfire_anthropic",
        "anthropic_client.py",
        ("sync", "stream", "helper"),
        "logfire anthropic",
        "logfire",
        *_ANTHROPIC,
    ),
    **_rows(
        "logfire_v6_anthropic",
        "anthropic_client.py",
        ("sync", "stream", "helper"),
        "logfire anthropic",
        "logfire==6.0.0b8",
        *_ANTHROPIC,
    ),
    **_rows(
        "mlflow_anthropic",
        "anthropic_client.py",
        ("sync", "stream"),
        "mlflow anthropic app",
        "mlflow",
        *_ANTHROPIC,
    ),
    **_rows(
        "langsmith_anthropic",
        "anthropic_client.py",
        ("sync", "thinking"),
        "langsmith anthropic",
        "langsmith",
        *_ANTHROPIC,
    ),
    **_rows(
        "langgraph_oi",
        "langchain_agent.py",
        _LANGGRAPH,
        _instrumentor("openinference.instrumentation.langchain:LangChainInstrumentor"),
        "openinference-instrumentation-langchain",
        *_LANGCHAIN,
    ),
    **_rows(
        "langgraph_traceloop",
        "langchain_agent.py",
        _LANGGRAPH,
        _instrumentor("opentelemetry.instrumentation.langchain:LangchainInstrumentor"),
        "opentelemetry-instrumentation-langchain",
        *_LANGCHAIN,
    ),
    **_rows(
        "langgraph_genai",
        "langchain_agent.py",
        _LANGGRAPH,
        _instrumentor("opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor"),
        "opentelemetry-instrumentation-genai-langchain",
        *_LANGCHAIN,
        settings=ON_SPANS,
    ),
    **_rows(
        "langgraph_genai_v12",
        "langchain_agent.py",
        ("openai", "responses"),
        _instrumentor("opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor"),
        "opentelemetry-instrumentation-genai-langchain==1.2b0",
        *_LANGCHAIN,
        settings=ON_SPANS,
    ),
    **_rows("langgraph_langsmith", "langchain_agent.py", _LANGGRAPH, "langsmith", "langsmith", *_LANGCHAIN),
    **_rows("langfuse_langchain", "langchain_agent.py", _LANGGRAPH, "langfuse langchain", "langfuse", *_LANGCHAIN),
    **_rows("mlflow_langchain", "langchain_agent.py", _LANGGRAPH, "mlflow langchain app", "mlflow", *_LANGCHAIN),
    **_rows("litellm_callback", "litellm_client.py", ("sync", "stream"), "callback", *_LITELLM, settings=_CALLBACK),
    **_rows(
        "litellm_oi",
        "litellm_client.py",
        ("sync", "stream", "responses", "rstream", "messages"),
        _instrumentor("openinference.instrumentation.litellm:LiteLLMInstrumentor"),
        "openinference-instrumentation-litellm",
        *_LITELLM,
    ),
    **_rows("pydantic_v2", "pydantic_agent.py", ("chat", "responses", "anthropic"), "default", *_PYDANTIC),
    **_rows(
        "openai_agents_oi",
        "openai_agent.py",
        _CHAT,
        _instrumentor("openinference.instrumentation.openai_agents:OpenAIAgentsInstrumentor"),
        "openinference-instrumentation-openai-agents",
        *_AGENTS,
    ),
    **_rows(
        "openai_agents_traceloop",
        "openai_agent.py",
        _CHAT,
        _instrumentor("opentelemetry.instrumentation.openai_agents:OpenAIAgentsInstrumentor"),
        "opentelemetry-instrumentation-openai-agents",
        *_AGENTS,
    ),
    **_rows("openai_agents_logfire", "openai_agent.py", _CHAT, "logfire openai_agents", "logfire", *_AGENTS),
    **_rows(
        "openai_agents_logfire_v6", "openai_agent.py", _CHAT, "logfire openai_agents", "logfire==6.0.0b8", *_AGENTS
    ),
    **_rows(
        "smolagents_oi",
        "smolagents_agent.py",
        ("sync",),
        _instrumentor("openinference.instrumentation.smolagents:SmolagentsInstrumentor"),
        "openinference-instrumentation-smolagents",
        *_SMOLAGENTS,
    ),
    **_rows("strands_native", "strands_agent.py", (), "own", *_STRANDS, settings=_LATEST),
    **_rows("strands_native_default", "strands_agent.py", (), "own", *_STRANDS),
    **_rows(
        "strands_oi",
        "strands_agent.py",
        (),
        "own openinference.instrumentation.strands_agents:StrandsAgentsToOpenInferenceProcessor",
        "openinference-instrumentation-strands-agents",
        *_STRANDS,
        settings=_LATEST,
    ),
    **_rows(
        "gemini_oi",
        "gemini_client.py",
        ("sync", "stream", "thinking", "thinking_stream"),
        _instrumentor("openinference.instrumentation.google_genai:GoogleGenAIInstrumentor"),
        "openinference-instrumentation-google-genai",
        *_GOOGLE,
    ),
    **_rows(
        "gemini_otel",
        "gemini_client.py",
        ("sync", "stream", "thinking"),
        _instrumentor("opentelemetry.instrumentation.google_genai:GoogleGenAiSdkInstrumentor"),
        "opentelemetry-instrumentation-google-genai",
        "google-genai==2.34.0",
        *sdk(),
        settings=ON_SPANS,
    ),
    **_rows(
        "bedrock_oi",
        "bedrock_client.py",
        ("converse", "stream", "invoke"),
        _instrumentor("openinference.instrumentation.bedrock:BedrockInstrumentor"),
        "openinference-instrumentation-bedrock",
        *_BEDROCK,
    ),
    **_rows(
        "bedrock_genai",
        "bedrock_client.py",
        ("converse", "stream"),
        _instrumentor("opentelemetry.instrumentation.genai.bedrock:BedrockInstrumentor"),
        "opentelemetry-instrumentation-genai-bedrock",
        *_BEDROCK,
        settings=ON_SPANS,
    ),
    **_rows(
        "bedrock_botocore",
        "bedrock_client.py",
        ("converse", "stream", "invoke"),
        _instrumentor("opentelemetry.instrumentation.botocore:BotocoreInstrumentor"),
        "opentelemetry-instrumentation-botocore",
        *_BEDROCK,
        settings=CONTENT,
    ),
    **_rows("adk_native", "adk_agent.py", ("litellm", "gemini"), "own", *_ADK, settings=ON_SPANS),
    **_rows(
        "autogen_oi",
        "autogen_agent.py",
        (),
        _instrumentor("openinference.instrumentation.autogen_agentchat:AutogenAgentChatInstrumentor"),
        "openinference-instrumentation-autogen-agentchat",
        *_AUTOGEN,
    ),
    **_rows(
        "llama_oi",
        "llama_agent.py",
        (),
        _instrumentor("openinference.instrumentation.llama_index:LlamaIndexInstrumentor"),
        "openinference-instrumentation-llama-index",
        *_LLAMA,
    ),
    **_rows(
        "llama_traceloop",
        "llama_agent.py",
        (),
        _instrumentor("opentelemetry.instrumentation.llamaindex:LlamaIndexInstrumentor"),
        "opentelemetry-instrumentation-llamaindex",
        *_LLAMA,
    ),
    **_rows(
        "agno_oi",
        "agno_agent.py",
        ("chat", "stream", "responses"),
        _instrumentor("openinference.instrumentation.agno:AgnoInstrumentor"),
        "openinference-instrumentation-agno",
        "agno",
        *_OPENAI,
    ),
    **_rows(
        "agent_framework",
        "agent_framework_agent.py",
        _CHAT,
        "own",
        "agent-framework-core",
        "agent-framework-openai",
        *sdk(),
    ),
    **_rows(
        "haystack_oi",
        "haystack_agent.py",
        (),
        _instrumentor("openinference.instrumentation.haystack:HaystackInstrumentor"),
        "openinference-instrumentation-haystack",
        "haystack-ai",
        *sdk(),
    ),
    **_rows(
        "livekit",
        "livekit_agent.py",
        (),
        "own",
        "livekit-agents",
        "livekit-plugins-openai",
        *sdk(),
    ),
    **_rows("sk_native", "semantic_kernel_agent.py", (), "own", "semantic-kernel", *sdk()),
    **_rows(
        "traceloop_sdk",
        "openai_client.py",
        _CHAT,
        "traceloop",
        "traceloop-sdk",
        "openai",
        "httpx==0.28.1",
    ),
    **_rows(
        "traceloop_sdk_langchain",
        "langchain_agent.py",
        ("openai", "anthropic"),
        "traceloop",
        "traceloop-sdk",
        *_LANGCHAIN[:-2],
    ),
    **_rows("laminar", "openai_client.py", _CHAT, "laminar", "lmnr", "openai"),
    **_rows(
        "crewai_oi_openai",
        "crewai_agent.py",
        (),
        _instrumentor("openinference.instrumentation.openai:OpenAIInstrumentor"),
        "openinference-instrumentation-openai",
        *_CREWAI,
    ),
    **_rows(
        "agno_oi_openai",
        "agno_agent.py",
        ("chat",),
        _instrumentor("openinference.instrumentation.openai:OpenAIInstrumentor"),
        "openinference-instrumentation-openai",
        "agno",
        *_OPENAI,
    ),
    **_rows(
        "vercel_ai_v7", "vercel_agent.mjs", ("openai", "stream", "responses", "rstream", "anthropic"), "otel", *_AI_7
    ),
    **_rows("vercel_ai_v7_legacy", "vercel_agent.mjs", ("openai", "stream", "anthropic"), "legacy", *_AI_7),
    **_rows(
        "vercel_ai_v7_oi",
        "vercel_agent.mjs",
        ("openai", "anthropic"),
        "openinference",
        "@arizeai/openinference-vercel",
        *_AI_7,
    ),
    **_rows("vercel_ai_v6", "vercel_agent.mjs", ("openai", "stream", "anthropic"), "tester", *_AI_6),
    **_rows(
        "openai_js_oi",
        "openai_client.mjs",
        _CHAT,
        "openinference",
        "@arizeai/openinference-instrumentation-openai",
        "openai",
        *_NODE,
    ),
    **_rows(
        "openai_js_traceloop",
        "openai_client.mjs",
        _CHAT,
        "traceloop",
        "@traceloop/instrumentation-openai",
        "openai",
        *_NODE,
    ),
    **_rows("mastra", "mastra_agent.mjs", ("sync", "stream"), "own", *_MASTRA),
    **_rows(
        "anthropic_genai_v12",
        "anthropic_client.py",
        ("sync",),
        _instrumentor("opentelemetry.instrumentation.genai.anthropic:AnthropicInstrumentor"),
        "opentelemetry-instrumentation-genai-anthropic==1.2b0",
        *_ANTHROPIC,
        settings=ON_SPANS,
    ),
    **_rows(
        "gemini_otel_v12",
        "gemini_client.py",
        ("sync",),
        _instrumentor("opentelemetry.instrumentation.google_genai:GoogleGenAiSdkInstrumentor"),
        "opentelemetry-instrumentation-google-genai==1.2b0",
        "google-genai==2.34.0",
        *sdk(),
        settings=ON_SPANS,
    ),
    **_rows(
        "openai_js_traceloop_v026",
        "openai_client.mjs",
        ("responses",),
        "traceloop",
        "@traceloop/instrumentation-openai@0.26.0",
        "openai",
        *_NODE,
    ),
}
