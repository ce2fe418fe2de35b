"""Root texts: what a rollout was first asked and last answered, on its own span.

Pages of traces (Phoenix, MLflow) show of a trace what its root span says, in the names of OpenInference:
https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md. Trajectories are not made of it.

Invariant: the texts are those of spans that secrets and, where that is asked for, contents were taken out of.
"""

from typing import Final

from opentelemetry.sdk.trace import ReadableSpan

from art_otel.calls import Message
from art_otel.conventions import parse_call
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE, SPAN_KIND
from art_otel.tracing.sdk.rollout_registry import snapshot
from art_otel.tracing.sdk.span_parts import SpanParts

_LONGEST: Final = 10_000
"""Characters of a text; its call has all of it."""


def add_root_texts(root: ReadableSpan, first: ReadableSpan, last: ReadableSpan) -> None:
    """Put the last user message of the first call and the answer of the last on a rollout's own span, which has ended.

    What the app says there itself stays.
    """
    asked, answered = parse_call(snapshot(first)), parse_call(snapshot(last))
    messages = [message for message in asked.input_messages or () if message.role == "user"]
    choices = answered.choices or ()
    texts = {
        INPUT_VALUE: _text(messages[-1]) if messages else None,
        OUTPUT_VALUE: _text(choices[0].message) if choices else None,
    }
    parts = SpanParts.of(root)
    if any(texts.values()) and parts.attributes.keys().isdisjoint((SPAN_KIND, *texts)):
        parts.attributes[SPAN_KIND] = "CHAIN"
        parts.attributes |= {name: text[:_LONGEST] for name, text in texts.items() if text}
        parts.put(root)


def _text(message: Message) -> str | None:
    called = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return message.content or message.refusal or "\n".join(called) or None
