"""The table of what becomes of recordings with their truth: a row a recorder, from what `tests/dialects` expects.

Invariant: every recording with a truth is in one row; `tests/dialects` shows that each is as the table says.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.dialects.expected import DOUBTED, FLAGGED, UNTRAINED, WITHOUT_CALLS

TRUTHS: Final = Path(__file__).resolve().parent.parent / "tests" / "dialects"

RECORDERS: Final = {
    "adk_native_v1": "Google ADK 1.x",
    "adk_native": "Google ADK",
    "adk_oi": "Google ADK, OpenInference",
    "anthropic_native": "Anthropic SDK, its own spans",
    "anthropic_old_traceloop": "Anthropic, OpenLLMetry 0.40",
    "autogen_native": "AutoGen, its own spans",
    "autogen_oi": "AutoGen, OpenInference",
    "bedrock_botocore": "Bedrock, OTel's botocore instrumentor",
    "bedrock_genai": "Bedrock, OTel GenAI",
    "bedrock_oi": "Bedrock, OpenInference",
    "crewai_oi": "CrewAI, OpenInference",
    "crewai_traceloop": "CrewAI, OpenLLMetry",
    "dspy_oi": "DSPy, OpenInference",
    "gemini_oi": "Gemini, OpenInference",
    "gemini_otel": "Gemini, OTel's google-genai instrumentor",
    "laminar": "Laminar 0.8",
    "langfuse": "Langfuse SDK 5",
    "langgraph_genai": "LangGraph, OTel GenAI",
    "langgraph_langsmith": "LangGraph, LangSmith's OTel",
    "langgraph_oi": "LangGraph, OpenInference",
    "langgraph_traceloop": "LangGraph, OpenLLMetry",
    "langgraph_traceloop_v040": "LangGraph, OpenLLMetry 0.40",
    "langgraph_traceloop_v047": "LangGraph, OpenLLMetry 0.47",
    "langgraph_traceloop_v049": "LangGraph, OpenLLMetry 0.49",
    "langsmith": "LangSmith's OTel",
    "litellm_callback": "LiteLLM, its callback",
    "litellm_v180": "LiteLLM 1.80, its callback, one call",
    "litellm_v2": "LiteLLM, its newer OTel (`LITELLM_OTEL_V2`)",
    "litellm_oi": "LiteLLM, OpenInference",
    "livekit_native": "LiveKit agents",
    "llama_oi": "LlamaIndex, OpenInference",
    "llama_traceloop": "LlamaIndex, OpenLLMetry",
    "logfire": "Logfire",
    "mastra": "Mastra",
    "mlflow": "MLflow autolog",
    "openai_agents_genai": "OpenAI Agents, OTel GenAI",
    "openai_agents_logfire": "OpenAI Agents, Logfire",
    "openai_agents_oi": "OpenAI Agents, OpenInference",
    "openai_agents_traceloop": "OpenAI Agents, OpenLLMetry",
    "openlit": "OpenLIT, older",
    "openlit_145": "OpenLIT 1.45",
    "pipecat": "Pipecat 1.14, calls without tools",
    "pydantic": "Pydantic AI 0.4",
    "pydantic_ai": "Pydantic AI, older events",
    "sk_native": "Semantic Kernel",
    "smolagents_genai": "smolagents, OTel GenAI",
    "smolagents_oi": "smolagents, OpenInference",
    "strands_native": "Strands",
    "strands_oi": "Strands, OpenInference",
    "vercel_ai": "Vercel AI SDK 6",
    "vercel": "Vercel AI SDK 5",
    "bedrock_oi_v01": "Bedrock, OpenInference 0.1.36",
    "gemini_oi_v01": "Gemini, OpenInference 0.1.8",
    "gemini_otel_v04": "Gemini, OTel's google-genai instrumentor 0.4",
    "langfuse_v3": "Langfuse SDK 3",
    "langgraph_traceloop_v053": "LangGraph, OpenLLMetry 0.53",
    "openai_genai_v11": "OpenAI's Responses API, OTel GenAI 1.1",
    "openai_traceloop_v047": "OpenAI's Responses API, OpenLLMetry 0.47",
    "openlit_v141": "OpenLIT 1.41",
    "pydantic_v1": "Pydantic AI 1.44",
    "pydantic_v2": "Pydantic AI 2.68",
    "vercel_ai_v7": "Vercel AI SDK 7",
    "vercel_ai_v7_oi": "Vercel AI SDK 7, OpenInference",
    "strands_v130": "Strands 1.30",
}
"""How the names of a recorder's recordings begin; the longest that fits is its own."""


def recorder_rows() -> Iterator[list[str]]:
    """Give each recorder, its right recordings of all, and what the others lost or what to add."""
    names = sorted(path.name.removesuffix(".truth.json") for path in TRUTHS.glob("*.truth.json"))
    by_recorder: dict[str, list[str]] = {}
    for name in names:
        by_recorder.setdefault(_recorder(name), []).append(name)
    for recorder in sorted(by_recorder, key=str.lower):
        yield [recorder, *_verdicts(by_recorder[recorder])]


def _recorder(name: str) -> str:
    return RECORDERS[max((start for start in RECORDERS if name.startswith(start)), key=len)]


def _verdicts(names: list[str]) -> tuple[str, str]:
    right = [name for name in names if name not in {*FLAGGED, *UNTRAINED, *WITHOUT_CALLS}]
    lost = dict.fromkeys(f"flagged: {FLAGGED[name]}" for name in names if name in FLAGGED)
    doubted = dict.fromkeys(f"right, and flagged: {DOUBTED[name]}" for name in names if name in DOUBTED)
    untrained = dict.fromkeys(f"right, and not trained: {UNTRAINED[name]}" for name in names if name in UNTRAINED)
    unread = dict.fromkeys(f"no LLM spans: add `{WITHOUT_CALLS[name]}`" for name in names if name in WITHOUT_CALLS)
    return f"{len(right)} of {len(names)}", "; ".join((*lost, *doubted, *untrained, *unread)) or "nothing"
