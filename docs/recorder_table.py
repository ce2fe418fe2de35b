"""The table of what becomes of recordings with their truth: a row a recorder, from what `tests/dialects` expects.

Invariant: every recording with a truth is in one row; `tests/dialects` shows that each is as the table says.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.dialects.expected import DOUBTED, FLAGGED, RENAMED, UNTRAINED, WITHOUT_CALLS
from tests.dialects.recording.tables import ROWS
from tests.dialects.recording.tables.newest import BEFORE
from tests.dialects.recording.tables.row import package_of

TRUTHS: Final = Path(__file__).resolve().parent.parent / "tests" / "dialects"

RECORDERS: Final = {
    "adk_native": ("Google ADK", "google-adk"),
    "adk_native_v1": ("Google ADK 1.x", "google-adk"),
    "adk_oi": ("Google ADK, OpenInference", "openinference-instrumentation-google-adk"),
    "agent_framework": ("Agent Framework, its own spans", "agent-framework-core"),
    "agno_oi": ("agno, OpenInference", "openinference-instrumentation-agno"),
    "agno_oi_openai": ("agno, OpenInference's openai instrumentor", "openinference-instrumentation-openai"),
    "anthropic_genai": ("Anthropic, OTel GenAI", "opentelemetry-instrumentation-genai-anthropic"),
    "anthropic_genai_v12": ("Anthropic, OTel GenAI 1.2", "opentelemetry-instrumentation-genai-anthropic"),
    "anthropic_native": ("Anthropic SDK, its own spans", "anthropic"),
    "anthropic_oi": ("Anthropic, OpenInference", "openinference-instrumentation-anthropic"),
    "anthropic_old_traceloop": ("Anthropic, OpenLLMetry 0.40", "opentelemetry-instrumentation-anthropic"),
    "anthropic_traceloop": ("Anthropic, OpenLLMetry", "opentelemetry-instrumentation-anthropic"),
    "autogen_native": ("AutoGen, its own spans", "autogen-agentchat"),
    "autogen_oi": ("AutoGen, OpenInference", "openinference-instrumentation-autogen-agentchat"),
    "bedrock_botocore": ("Bedrock, OTel's botocore instrumentor", "opentelemetry-instrumentation-botocore"),
    "bedrock_genai": ("Bedrock, OTel GenAI", "opentelemetry-instrumentation-genai-bedrock"),
    "bedrock_oi": ("Bedrock, OpenInference", "openinference-instrumentation-bedrock"),
    "bedrock_oi_v01": ("Bedrock, OpenInference 0.1.36", "openinference-instrumentation-bedrock"),
    "crewai_oi": ("CrewAI, OpenInference", "openinference-instrumentation-crewai"),
    "crewai_oi_openai": ("CrewAI, OpenInference's openai instrumentor", "openinference-instrumentation-openai"),
    "crewai_traceloop": ("CrewAI, OpenLLMetry", "opentelemetry-instrumentation-crewai"),
    "dspy_oi": ("DSPy, OpenInference", "openinference-instrumentation-dspy"),
    "gemini_oi": ("Gemini, OpenInference", "openinference-instrumentation-google-genai"),
    "gemini_oi_v01": ("Gemini, OpenInference 0.1.8", "openinference-instrumentation-google-genai"),
    "gemini_otel": ("Gemini, OTel's google-genai instrumentor", "opentelemetry-instrumentation-google-genai"),
    "gemini_otel_v12": ("Gemini, OTel's google-genai instrumentor 1.2", "opentelemetry-instrumentation-google-genai"),
    "gemini_otel_v04": ("Gemini, OTel's google-genai instrumentor 0.4", "opentelemetry-instrumentation-google-genai"),
    "haystack_oi": ("Haystack, OpenInference", "openinference-instrumentation-haystack"),
    "laminar": ("Laminar", "lmnr"),
    "langfuse": ("Langfuse SDK 5", "langfuse"),
    "langfuse_v3": ("Langfuse SDK 3", "langfuse"),
    "langgraph_genai": ("LangGraph, OTel GenAI", "opentelemetry-instrumentation-genai-langchain"),
    "langgraph_genai_v12": ("LangGraph, OTel GenAI 1.2", "opentelemetry-instrumentation-genai-langchain"),
    "langgraph_langsmith": ("LangGraph, LangSmith's OTel", "langsmith"),
    "langgraph_oi": ("LangGraph, OpenInference", "openinference-instrumentation-langchain"),
    "langgraph_traceloop": ("LangGraph, OpenLLMetry", "opentelemetry-instrumentation-langchain"),
    "langgraph_traceloop_v040": ("LangGraph, OpenLLMetry 0.40", "opentelemetry-instrumentation-langchain"),
    "langgraph_traceloop_v047": ("LangGraph, OpenLLMetry 0.47", "opentelemetry-instrumentation-langchain"),
    "langgraph_traceloop_v049": ("LangGraph, OpenLLMetry 0.49", "opentelemetry-instrumentation-langchain"),
    "langgraph_traceloop_v053": ("LangGraph, OpenLLMetry 0.53", "opentelemetry-instrumentation-langchain"),
    "langsmith": ("LangSmith's OTel", "langsmith"),
    "litellm_callback": ("LiteLLM, its callback", "litellm"),
    "litellm_oi": ("LiteLLM, OpenInference", "openinference-instrumentation-litellm"),
    "litellm_v180": ("LiteLLM 1.80, its callback, one call", "litellm"),
    "litellm_v2": ("LiteLLM, its newer OTel (`LITELLM_OTEL_V2`)", "litellm"),
    "livekit": ("LiveKit Agents, its own spans", "livekit-agents"),
    "llama_oi": ("LlamaIndex, OpenInference", "openinference-instrumentation-llama-index"),
    "llama_traceloop": ("LlamaIndex, OpenLLMetry", "opentelemetry-instrumentation-llamaindex"),
    "logfire": ("Logfire", "logfire"),
    "logfire_v52": ("Logfire before 5.3, `version=1`", "logfire"),
    "logfire_v6": ("Logfire 6, a prerelease", "logfire"),
    "mastra": ("Mastra", "@mastra/core"),
    "mlflow": ("MLflow autolog", "mlflow"),
    "openai_agents_genai": ("OpenAI Agents, OTel GenAI", "opentelemetry-instrumentation-genai-openai-agents"),
    "openai_agents_logfire": ("OpenAI Agents, Logfire", "logfire"),
    "openai_agents_logfire_v6": ("OpenAI Agents, Logfire 6, a prerelease", "logfire"),
    "openai_agents_oi": ("OpenAI Agents, OpenInference", "openinference-instrumentation-openai-agents"),
    "openai_agents_traceloop": ("OpenAI Agents, OpenLLMetry", "opentelemetry-instrumentation-openai-agents"),
    "openai_genai": ("OpenAI, OTel GenAI", "opentelemetry-instrumentation-genai-openai"),
    "openai_genai_v11": ("OpenAI's Responses API, OTel GenAI 1.1", "opentelemetry-instrumentation-genai-openai"),
    "openai_js_oi": ("OpenAI in JavaScript, OpenInference", "@arizeai/openinference-instrumentation-openai"),
    "openai_js_traceloop": ("OpenAI in JavaScript, OpenLLMetry", "@traceloop/instrumentation-openai"),
    "openai_js_traceloop_v026": ("Responses in JavaScript, OpenLLMetry 0.26", "@traceloop/instrumentation-openai"),
    "openai_oi": ("OpenAI, OpenInference", "openinference-instrumentation-openai"),
    "openai_traceloop": ("OpenAI, OpenLLMetry", "opentelemetry-instrumentation-openai"),
    "openai_traceloop_v047": ("OpenAI's Responses API, OpenLLMetry 0.47", "opentelemetry-instrumentation-openai"),
    "openai_v2": ("OpenAI, OTel's openai-v2", "opentelemetry-instrumentation-openai-v2"),
    "openlit": ("OpenLIT, older", "openlit"),
    "openlit_145": ("OpenLIT 1.45", "openlit"),
    "openlit_v141": ("OpenLIT 1.41", "openlit"),
    "pipecat": ("Pipecat, calls without tools", "pipecat-ai"),
    "pydantic": ("Pydantic AI 0.4", "pydantic-ai-slim"),
    "pydantic_ai": ("Pydantic AI, older events", "pydantic-ai-slim"),
    "pydantic_v1": ("Pydantic AI 1.44", "pydantic-ai-slim"),
    "pydantic_v2": ("Pydantic AI 2.68", "pydantic-ai-slim"),
    "sk_native": ("Semantic Kernel", "semantic-kernel"),
    "smolagents_genai": ("smolagents, OTel GenAI", "opentelemetry-instrumentation-genai-smolagents"),
    "smolagents_oi": ("smolagents, OpenInference", "openinference-instrumentation-smolagents"),
    "strands_native": ("Strands", "strands-agents"),
    "strands_oi": ("Strands, OpenInference", "openinference-instrumentation-strands-agents"),
    "strands_v130": ("Strands 1.30", "strands-agents"),
    "traceloop_sdk": ("Traceloop's SDK", "traceloop-sdk"),
    "vercel": ("Vercel AI SDK 5", "ai"),
    "vercel_ai": ("Vercel AI SDK 6", "ai"),
    "vercel_ai_v7": ("Vercel AI SDK 7", "ai"),
    "vercel_ai_v7_legacy": ("Vercel AI SDK 7, its legacy spans", "@ai-sdk/otel"),
    "vercel_ai_v7_oi": ("Vercel AI SDK 7, OpenInference", "@arizeai/openinference-vercel"),
}
"""How the names of a recorder's recordings begin, how it is called, and the package whose releases were judged.

The longest beginning that fits is a recording's own; `harder_` stands before it where the conversation is the harder.
"""


def recorder_rows() -> Iterator[list[str]]:
    """Give each recorder, its releases, its right recordings of all, and what the others lost or what to add."""
    names = sorted(path.name.removesuffix(".truth.json") for path in TRUTHS.glob("*.truth.json"))
    by_recorder: dict[tuple[str, str], list[str]] = {}
    for name in names:
        by_recorder.setdefault(_recorder(name), []).append(name)
    for said, package in sorted(by_recorder, key=lambda recorder: recorder[0].lower()):
        recordings = by_recorder[said, package]
        yield [said, _releases(package, recordings), *_verdicts(recordings)]


def _recorder(name: str) -> tuple[str, str]:
    plain = name.removeprefix("harder_")
    return RECORDERS[max((start for start in RECORDERS if plain.startswith(start)), key=len)]


def _releases(package: str, names: list[str]) -> str:
    """The releases of a package that made these recordings, and the one before that was judged to record the same."""
    rows = [ROWS[name] for name in names if name in ROWS]
    pins = [package_of(pin) for row in rows for pin in row.pins]
    releases = {found[1] for pin in pins if (found := re.fullmatch(rf"{re.escape(package)}(?:==|@)(.+)", pin))}
    if package in BEFORE and any(package in map(package_of, row.requires) for row in rows):
        releases.add(BEFORE[package])
    newest_first = sorted(releases, key=lambda version: [int(one) for one in re.findall(r"\d+", version)], reverse=True)
    return f"`{package}` {', '.join(newest_first)}".rstrip()


def _verdicts(names: list[str]) -> tuple[str, str]:
    right = [name for name in names if name not in {*FLAGGED, *UNTRAINED, *WITHOUT_CALLS}]
    lost = dict.fromkeys(f"flagged: {FLAGGED[name]}" for name in names if name in FLAGGED)
    doubted = dict.fromkeys(f"right, and flagged: {DOUBTED[name]}" for name in names if name in DOUBTED)
    untrained = dict.fromkeys(
        f"right, and not trained: {UNTRAINED[name]}" for name in names if name in UNTRAINED and name not in DOUBTED
    )
    unread = dict.fromkeys(f"no LLM spans: add `{WITHOUT_CALLS[name]}`" for name in names if name in WITHOUT_CALLS)
    renamed = dict.fromkeys(f"right, but {RENAMED[name]}" for name in names if name in RENAMED)
    return f"{len(right)} of {len(names)}", "; ".join((*lost, *doubted, *untrained, *renamed, *unread)) or "nothing"
