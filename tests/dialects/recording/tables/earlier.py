"""Earlier versions of recorders, as people still have them: what these lose is flagged, or read elsewhere."""

from typing import Final

from tests.dialects.recording.tables.row import ON_SPANS, Row, sdk

_SDK: Final = sdk("1.38.0")
_GOOGLE: Final = ("google-genai==1.47.0", "opentelemetry-instrumentation-google-genai==0.4b0", *_SDK)
_OI_GOOGLE: Final = ("google-genai==1.50.0", "openinference-instrumentation-google-genai==0.1.8", *_SDK)
_OI_BEDROCK: Final = ("boto3==1.43.2", "openinference-instrumentation-bedrock==0.1.36", *sdk("1.41.1"))
_OPENAI: Final = ("openai==2.6.1", "opentelemetry-instrumentation-openai==0.47.5", *_SDK)
_LANGCHAIN: Final = (
    "langchain==1.4.7",
    "langgraph==1.2.22",
    "langchain-openai==1.7.3",
    "opentelemetry-instrumentation-langchain==0.53.4",
    "wrapt==1.17.3",
    *sdk("1.41.0"),
)

_BY_OI_GOOGLE: Final = "instrumentor openinference.instrumentation.google_genai:GoogleGenAIInstrumentor"
_BY_GOOGLE: Final = "instrumentor opentelemetry.instrumentation.google_genai:GoogleGenAiSdkInstrumentor"
_BY_OI_BEDROCK: Final = "instrumentor openinference.instrumentation.bedrock:BedrockInstrumentor"
_BY_TRACELOOP_LANGCHAIN: Final = "instrumentor opentelemetry.instrumentation.langchain:LangchainInstrumentor"
_BY_TRACELOOP: Final = "instrumentor opentelemetry.instrumentation.openai:OpenAIInstrumentor"

_2025: Final = "2025-11-01"
_2026: Final = "2026-05-01"

EARLIER: Final[dict[str, Row]] = {
    "bedrock_oi_v01_converse": Row(
        requires=_OI_BEDROCK, run=("bedrock_client.py", "converse", _BY_OI_BEDROCK), day=_2026
    ),
    "gemini_oi_v01": Row(requires=_OI_GOOGLE, run=("gemini_client.py", "sync", _BY_OI_GOOGLE), day="2025-12-01"),
    "gemini_oi_v01_stream": Row(
        requires=_OI_GOOGLE, run=("gemini_client.py", "stream", _BY_OI_GOOGLE), day="2025-12-01"
    ),
    "gemini_otel_v04_thinking": Row(
        requires=_GOOGLE, run=("gemini_client.py", "thinking", _BY_GOOGLE), settings=ON_SPANS, day=_2025
    ),
    "langfuse_v3_responses": Row(
        requires=("langfuse==3.8.1", "openai==2.6.1"),
        run=("openai_client.py", "responses", "langfuse openai"),
        day=_2025,
    ),
    "langfuse_v3_rstream": Row(
        requires=("langfuse==3.8.1", "openai==2.6.1"), run=("openai_client.py", "rstream", "langfuse openai"), day=_2025
    ),
    "langfuse_v3_stream": Row(
        requires=("langfuse==3.8.1", "openai==2.6.1"), run=("openai_client.py", "stream", "langfuse openai"), day=_2025
    ),
    "langgraph_traceloop_v053": Row(
        requires=_LANGCHAIN, run=("langchain_agent.py", "openai", _BY_TRACELOOP_LANGCHAIN), day="2026-11-24"
    ),
    "logfire_v52_stream_v1": Row(
        requires=("logfire==5.2.0", "openai==3.52.0", *sdk("1.45.2")),
        run=("openai_client.py", "stream", "logfire openai 1"),
        day="2026-11-24",
    ),
    "openai_traceloop_v047_responses": Row(
        requires=_OPENAI, run=("openai_client.py", "responses", _BY_TRACELOOP), day=_2025
    ),
    "openlit_v141_anthropic": Row(
        requires=("openlit==1.41.2", "openai==2.33.0", "anthropic==0.97.0"),
        run=("anthropic_client.py", "sync", "openlit"),
        day=_2026,
    ),
    "pydantic_v1_attributes": Row(
        requires=("pydantic-ai-slim[openai]==1.44.0", *sdk("1.39.1")),
        run=("pydantic_agent.py", "chat", "attributes"),
        day="2026-01-20",
    ),
    "strands_v130_native": Row(
        requires=("strands-agents[openai]==1.30.0", *sdk("1.40.0")),
        run=("strands_agent.py", "own bare"),
        day="2026-03-15",
    ),
}
