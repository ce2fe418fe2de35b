"""Clients of one API, with their own spans or an instrumentor's."""

from typing import Final

from tests.dialects.recording.tables.row import ANTHROPIC_CONTENT, CONTENT, ON_SPANS, Row, sdk

_ANTHROPIC: Final = ("anthropic", *sdk())
_OLD_ANTHROPIC: Final = ("anthropic==0.60.0", "opentelemetry-instrumentation-anthropic==0.40.14", *sdk("1.36.0"))
_GOOGLE: Final = ("google-genai", "openinference-instrumentation-google-genai", *sdk())
_OLD_GOOGLE: Final = ("google-genai==2.34.0", "opentelemetry-instrumentation-google-genai", *sdk())
_BOTOCORE: Final = ("boto3", "opentelemetry-instrumentation-botocore", *sdk())
_GENAI_BEDROCK: Final = ("boto3", "opentelemetry-instrumentation-genai-bedrock", *sdk())
_OI_BEDROCK: Final = ("boto3", "openinference-instrumentation-bedrock", *sdk())
_LITELLM: Final = ("litellm", "mcp", *sdk())
_OI_LITELLM: Final = (*_LITELLM, "openinference-instrumentation-litellm")

_BY_TRACELOOP: Final = "instrumentor opentelemetry.instrumentation.anthropic:AnthropicInstrumentor"
_BY_BOTOCORE: Final = "instrumentor opentelemetry.instrumentation.botocore:BotocoreInstrumentor"
_BY_GENAI_BEDROCK: Final = "instrumentor opentelemetry.instrumentation.genai.bedrock:BedrockInstrumentor"
_BY_OI_BEDROCK: Final = "instrumentor openinference.instrumentation.bedrock:BedrockInstrumentor"
_BY_OTEL_GOOGLE: Final = "instrumentor opentelemetry.instrumentation.google_genai:GoogleGenAiSdkInstrumentor"
_BY_OI_GOOGLE: Final = "instrumentor openinference.instrumentation.google_genai:GoogleGenAIInstrumentor"
_BY_OI_LITELLM: Final = "instrumentor openinference.instrumentation.litellm:LiteLLMInstrumentor"

_OWN_SPANS: Final = ON_SPANS | {"USE_OTEL_LITELLM_REQUEST_SPAN": "true"}

CLIENTS: Final[dict[str, Row]] = {
    "anthropic_native_sync": Row(
        requires=_ANTHROPIC, run=("anthropic_client.py", "sync", "own"), settings=ANTHROPIC_CONTENT
    ),
    "anthropic_native_stream": Row(
        requires=_ANTHROPIC, run=("anthropic_client.py", "stream", "own"), settings=ANTHROPIC_CONTENT
    ),
    "anthropic_old_traceloop_sync": Row(requires=_OLD_ANTHROPIC, run=("anthropic_client.py", "sync", _BY_TRACELOOP)),
    "anthropic_old_traceloop_stream": Row(
        requires=_OLD_ANTHROPIC, run=("anthropic_client.py", "stream", _BY_TRACELOOP)
    ),
    "bedrock_botocore_invoke": Row(
        requires=_BOTOCORE, run=("bedrock_client.py", "invoke", _BY_BOTOCORE), settings=CONTENT
    ),
    "bedrock_botocore_stream": Row(
        requires=_BOTOCORE, run=("bedrock_client.py", "stream", _BY_BOTOCORE), settings=CONTENT
    ),
    "bedrock_genai_converse": Row(
        requires=_GENAI_BEDROCK, run=("bedrock_client.py", "converse", _BY_GENAI_BEDROCK), settings=ON_SPANS
    ),
    "bedrock_genai_stream": Row(
        requires=_GENAI_BEDROCK, run=("bedrock_client.py", "stream", _BY_GENAI_BEDROCK), settings=ON_SPANS
    ),
    "bedrock_oi_converse": Row(requires=_OI_BEDROCK, run=("bedrock_client.py", "converse", _BY_OI_BEDROCK)),
    "bedrock_oi_stream": Row(requires=_OI_BEDROCK, run=("bedrock_client.py", "stream", _BY_OI_BEDROCK)),
    "gemini_oi_stream": Row(requires=_GOOGLE, run=("gemini_client.py", "stream", _BY_OI_GOOGLE)),
    "gemini_oi_thinking": Row(requires=_GOOGLE, run=("gemini_client.py", "thinking", _BY_OI_GOOGLE)),
    "gemini_oi_thinking_stream": Row(requires=_GOOGLE, run=("gemini_client.py", "thinking_stream", _BY_OI_GOOGLE)),
    "gemini_otel_sync_legacy": Row(requires=_OLD_GOOGLE, run=("gemini_client.py", "sync", _BY_OTEL_GOOGLE)),
    "gemini_otel_thinking": Row(
        requires=_OLD_GOOGLE, run=("gemini_client.py", "thinking", _BY_OTEL_GOOGLE), settings=ON_SPANS
    ),
    "litellm_callback": Row(requires=_LITELLM, run=("litellm_client.py", "sync", "callback"), settings=_OWN_SPANS),
    "litellm_oi_stream": Row(requires=_OI_LITELLM, run=("litellm_client.py", "stream", _BY_OI_LITELLM)),
}
