"""Agents of LangChain and LangGraph, under each recorder."""

from typing import Final

from tests.dialects.recording.tables.row import ON_SPANS, Row, sdk

_LANGCHAIN: Final = (
    "langchain",
    "langgraph",
    "langchain-openai",
    "langchain-anthropic",
    *sdk(),
)
_OI: Final = (*_LANGCHAIN, "openinference-instrumentation-langchain")
_TRACELOOP: Final = (*_LANGCHAIN, "opentelemetry-instrumentation-langchain")
_GENAI: Final = (*_LANGCHAIN, "opentelemetry-instrumentation-genai-langchain")
_LANGFUSE: Final = (*_LANGCHAIN, "langfuse")
_MLFLOW: Final = (*_LANGCHAIN, "mlflow")

_BY_OI: Final = "instrumentor openinference.instrumentation.langchain:LangChainInstrumentor bare"
_BY_TRACELOOP: Final = "instrumentor opentelemetry.instrumentation.langchain:LangchainInstrumentor bare"
_BY_GENAI: Final = "instrumentor opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor bare"

FRAMEWORKS: Final[dict[str, Row]] = {
    "langgraph_oi_openai": Row(requires=_OI, run=("langchain_agent.py", "openai", _BY_OI)),
    "langgraph_oi_responses": Row(requires=_OI, run=("langchain_agent.py", "responses", _BY_OI)),
    "langgraph_oi_anthropic": Row(requires=_OI, run=("langchain_agent.py", "anthropic", _BY_OI)),
    "langgraph_traceloop_anthropic": Row(requires=_TRACELOOP, run=("langchain_agent.py", "anthropic", _BY_TRACELOOP)),
    "langgraph_genai_responses": Row(
        requires=_GENAI, run=("langchain_agent.py", "responses", _BY_GENAI), settings=ON_SPANS
    ),
    "langgraph_langsmith_openai": Row(requires=_LANGCHAIN, run=("langchain_agent.py", "openai", "langsmith bare")),
    "langgraph_langsmith_stream": Row(requires=_LANGCHAIN, run=("langchain_agent.py", "stream", "langsmith bare")),
    "langgraph_langsmith_anthropic": Row(
        requires=_LANGCHAIN, run=("langchain_agent.py", "anthropic", "langsmith bare")
    ),
    "langsmith_lc_responses": Row(requires=_LANGCHAIN, run=("langchain_agent.py", "responses", "langsmith")),
    "langfuse_langchain": Row(requires=_LANGFUSE, run=("langchain_agent.py", "openai", "langfuse langchain")),
    "langfuse_langchain_anthropic": Row(
        requires=_LANGFUSE, run=("langchain_agent.py", "anthropic", "langfuse langchain")
    ),
    "mlflow_langchain": Row(requires=_MLFLOW, run=("langchain_agent.py", "openai", "mlflow langchain")),
}
