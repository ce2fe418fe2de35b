"""Wrapper spans: LLM spans that are no request of their own, and who recorded a span.

Instrumentors of frameworks mark every method of an LLM class (LlamaIndex), write a stream's answer to a second span
(Logfire), or repeat the response in one of its own (LiteLLM). Invariant: a span whose content may have been hidden,
dropped or cut is none of these, because a call nobody may read stays a call.
"""

from typing import Final

from art_otel.calls import InferenceCall
from art_otel.conventions.dialects import DIALECTS
from art_otel.conventions.dialects.litellm import RAW_SPAN
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE, SPAN_KIND
from art_otel.spans import Span

_HIDDEN: Final = "__REDACTED__"
"""What OpenInference writes in place of content that it was told to hide."""

_RECORDERS: Final = tuple(dialect.recorder for dialect in DIALECTS if dialect.recorder is not None)


def is_wrapper_method(span: Span, call: InferenceCall) -> bool:
    """Whether the span shows the arguments of a method and nothing that only a call has."""
    shown = span.attributes.get(INPUT_VALUE)
    is_shown = isinstance(shown, str) and shown != _HIDDEN and SPAN_KIND in span.attributes
    return is_shown and call.input_messages is None and _has_no_answer(call)


def is_request_only(span: Span, call: InferenceCall) -> bool:
    """Whether the span has a prompt, ended well, and has nothing of an answer."""
    ended_well = span.end_ns is not None and not call.failed
    asks = call.input_messages is not None and OUTPUT_VALUE not in span.attributes
    return ended_well and asks and _has_no_answer(call)


def recorder_of(span: Span) -> tuple[str, str]:
    """Who recorded the span: the instrumentor, and which of its integrations, of which each may record one call."""
    if span.name == RAW_SPAN:  # a copy of the response in its parent
        return span.scope.name, RAW_SPAN
    for name in _RECORDERS:
        if name in span.attributes:
            return span.scope.name, str(span.attributes[name])
    return span.scope.name, ""


def _has_no_answer(call: InferenceCall) -> bool:
    facts = (call.choices, call.response_id, call.usage, call.prompt_token_ids)
    return facts == (None,) * len(facts) and not call.gaps
