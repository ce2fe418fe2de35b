"""Completeness: everything that is known to be missing from a trajectory, by reason.

Invariant: a trajectory is complete only when nothing is known to be missing; every reason has a count of at least one.
A reason is a gap in the recording and its cause: what the agent did, failed calls included, is a fact and no gap, and a
prompt that is unknown because attributes were dropped counts as that and not as missing content.

To add a reason: a constant, its line in EXPLANATIONS (what it counts and what to do), and its count in
`find_incomplete`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import asked_of, holds_call, parse_call
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.accounting.span_counts import missing_spans
from art_otel.trajectories.lineage.turns import Lineage

MISSING_ROOT: Final = "missing root"
MISSING_PARENT: Final = "missing parent"
NOT_ENDED: Final = "not ended"
ATTRIBUTES_DROPPED: Final = "attributes dropped"
EVENTS_DROPPED: Final = "events dropped"
CUT_JSON: Final = "cut JSON"
NO_CONTENT: Final = "no content"
NOT_UNDERSTOOD: Final = "content not understood"
UNKNOWN_HISTORY: Final = "unknown history"
SPANS_MISSING: Final = "spans missing"
SPAN_QUARANTINED: Final = "span quarantined"
VALUE_QUARANTINED: Final = "value quarantined"
BAD_REWARD: Final = "bad reward"

EXPLANATIONS: Final[Mapping[str, str]] = {
    MISSING_ROOT: "the rollout's own span is not in the sources",
    MISSING_PARENT: "spans whose parent is not in the sources",
    NOT_ENDED: "spans that started and never ended",
    ATTRIBUTES_DROPPED: "attributes the SDK dropped (raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT)",
    EVENTS_DROPPED: "events the SDK dropped (raise OTEL_SPAN_EVENT_COUNT_LIMIT)",
    CUT_JSON: "attributes cut or damaged (raise OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT)",
    NO_CONTENT: "LLM calls of which nobody recorded prompt or completion (was content capture on?)",
    NOT_UNDERSTOOD: (
        "completions whose text or tool calls were lost, as the finish reason or a later prompt shows (record the calls"
        " with another instrumentor, or report the attributes they are in)"
    ),
    UNKNOWN_HISTORY: "calls that continue a response nobody recorded, or too long a history",
    SPANS_MISSING: "spans that the rollout counted and the sources do not hold",
    SPAN_QUARANTINED: "quarantined spans of its traces",
    VALUE_QUARANTINED: "quarantined values in its spans",
    BAD_REWARD: "rewards in it that are no number, or judge what it does not have",
}
"""What each reason counts, in words for people."""


def explain(reason: str) -> str:
    """What a reason counts; datasets of other versions may have others."""
    return EXPLANATIONS.get(reason, "a reason that this version does not know")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rollout: its own span, its spans and its lineage.

    `call_of` leads from each inference span to the span id of its call, `unresolved` counts calls that continue a
    response nobody recorded, `lost_spans`, `lost_values` and `bad_rewards` what
    quarantine took.
    """

    root: Span | None
    spans: Sequence[Span]
    lineage: Lineage
    call_of: Mapping[SpanKey, str]
    unresolved: int
    lost_spans: int
    lost_values: int
    bad_rewards: int


def find_incomplete(evidence: Evidence, tree: SpanTree) -> dict[str, int]:
    """Count what is missing by reason, in the order of EXPLANATIONS. Empty means complete."""
    root, spans, calls = evidence.root, evidence.spans, evidence.lineage.calls
    losing = [span for span in spans if _is_poorer(span) and _matters(span, root) and span.key not in evidence.call_of]
    counts = {
        MISSING_ROOT: int(root is None),
        MISSING_PARENT: sum(span.key in tree.orphans and span is not root for span in spans) if tree.orphans else 0,
        NOT_ENDED: sum(span.end_ns is None for span in spans),
        ATTRIBUTES_DROPPED: sum(span.dropped_attributes_count for span in losing)
        + sum(call.dropped_attributes for call in calls),
        EVENTS_DROPPED: sum(span.dropped_events_count for span in losing),
        CUT_JSON: sum(len(call.cut) for call in calls if not call.dropped_attributes),
        NO_CONTENT: sum(map(_lacks_content, calls)) + _overwritten_calls(spans, calls),
        NOT_UNDERSTOOD: _not_understood(evidence.lineage),
        UNKNOWN_HISTORY: evidence.unresolved,
        SPANS_MISSING: missing_spans(root, spans),
        SPAN_QUARANTINED: evidence.lost_spans,
        VALUE_QUARANTINED: evidence.lost_values,
        BAD_REWARD: evidence.bad_rewards,
    }
    return {reason: counts[reason] for reason in EXPLANATIONS if counts[reason]}


def is_without_content(call: InferenceCall) -> bool:
    """Whether nothing of the conversation was captured, for no other reason that is counted."""
    return call.input_messages is None and call.choices is None and not _has_known_cause(call)


def _has_known_cause(call: InferenceCall) -> bool:
    """Whether what is unknown of a call may have been dropped or cut, which are reasons of their own."""
    return bool(call.dropped_attributes or call.cut)


def _lacks_content(call: InferenceCall) -> bool:
    """Whether the prompt is unknown, or the completion of a call that did not fail, for no other reason here."""
    if _has_known_cause(call):
        return False
    prompt_unknown = call.input_messages is None and call.prompt_token_ids is None and call.previous_response_id is None
    return prompt_unknown or (call.choices is None and not call.failed)


def _not_understood(lineage: Lineage) -> int:
    """How many completions say less than was sampled, for no other reason here."""
    return sum(
        turn.untrained == "content doubtful" and not _has_known_cause(lineage.calls[turn.call])
        for turn in lineage.turns
    )


def _is_poorer(span: Span) -> bool:
    return bool(span.dropped_attributes_count or span.dropped_events_count)


def _matters(span: Span, root: Span | None) -> bool:
    """Whether what is dropped from this span can be missed in the trajectory."""
    return (
        span is root or attributes.STEP_INDEX in span.attributes or span.name.startswith(attributes.REWARD_SPAN_PREFIX)
    )


def _overwritten_calls(spans: Iterable[Span], calls: Sequence[InferenceCall]) -> int:
    """How many spans of ours hold a call without a span of its own: LiteLLM writes each onto the current span.

    What was written there before is lost. Where not both response ids are known the prompts tell whether it is one.
    """
    written = [parse_call(span) for span in spans if holds_call(span)]
    if not written:
        return 0
    answered = {call.response_id for call in calls if call.response_id is not None}
    asked = {asked_of(call) for call in calls}
    asked_without_id = {asked_of(call) for call in calls if call.response_id is None}
    return sum(
        call.response_id not in answered and asked_of(call) not in (asked_without_id if call.response_id else asked)
        for call in written
    )
