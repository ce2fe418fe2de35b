"""Untrained: why a sampled message must not be learnt, and stands as context only.

Invariant: each sample has one reason at most, and nobody else decides. What is recorded of it stays, and it may be
continued.
"""

from collections.abc import Collection, Sequence
from typing import Final

from art_otel.calls import Choice, InferenceCall
from art_otel.spans import SpanKey
from art_otel.trajectories.origins import Sample
from art_otel.trajectories.richer_repeats import find_richer_repeats

FAILED: Final = "failed"
CONTRADICTING: Final = "contradicting recordings"
STREAM_BROKE: Final = "stream broke"
DOUBTFUL: Final = "content doubtful"

_ASKS_FOR_TOOLS: Final = ("tool_calls", "function_call")


def find_untrained(calls: Sequence[InferenceCall], contradicting: Collection[SpanKey] = ()) -> dict[Sample, str]:
    """The samples that must not be trained, with the reason. `contradicting` are the keys of the spans of calls."""
    richer = find_richer_repeats(calls)
    found: dict[Sample, str] = {}
    for index, call in enumerate(calls):
        for position, choice in enumerate(call.choices or ()):
            reason = _reason(call, choice, contradicting)
            if reason is None and (index, position) in richer:
                reason = DOUBTFUL
            if reason is not None:
                found[index, position] = reason
    return found


def _reason(call: InferenceCall, choice: Choice, contradicting: Collection[SpanKey]) -> str | None:
    if call.failed:
        return FAILED
    if contradicting and (call.trace_id, call.span_id) in contradicting:
        return CONTRADICTING
    if call.stream is True and choice.finish_reason is None:
        return STREAM_BROKE
    return DOUBTFUL if _lost_tool_calls(choice) else None


def _lost_tool_calls(choice: Choice) -> bool:
    """Whether the model asked for tools and the calls are not there, but for what is known as tokens only."""
    message = choice.message
    if choice.finish_reason not in _ASKS_FOR_TOOLS or message.tool_calls:
        return False
    return bool(message.content or message.refusal or message.parts) or not choice.token_ids
