"""Recorders in Node."""

from typing import Final

from tests.dialects.recording.tables.row import Row

_SDK: Final = (
    "@opentelemetry/api",
    "@opentelemetry/sdk-trace-node",
    "@opentelemetry/exporter-trace-otlp-http",
)
_AI_5: Final = ("ai@5.0.277", "@ai-sdk/openai-compatible@1.0.61", *_SDK)
_AI_6: Final = ("ai@6.0.326", "@ai-sdk/openai-compatible@2.0.92", "@ai-sdk/anthropic@3.0.140", *_SDK)

NODE: Final[dict[str, Row]] = {
    "vercel_v5_sync": Row(requires=_AI_5, run=("vercel_agent.mjs", "openai")),
    "vercel_v5_stream": Row(requires=_AI_5, run=("vercel_agent.mjs", "stream")),
    "vercel_ai_v6_sync": Row(requires=_AI_6, run=("vercel_agent.mjs", "openai", "weather")),
    "vercel_ai_v6_stream": Row(requires=_AI_6, run=("vercel_agent.mjs", "stream", "weather")),
    "vercel_ai_v6_anthropic": Row(requires=_AI_6, run=("vercel_agent.mjs", "anthropic", "weather")),
}
