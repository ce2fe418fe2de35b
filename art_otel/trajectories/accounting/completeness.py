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
from art_otel.calls import (
    CONTENT_LOST,
    CONTENT_REWRITTEN,
    CONTENT_TRUNCATED,
    DOUBTS,
    LIST_HOLES,
    UNKNOWN_PARTS,
    InferenceCall,
)
from art_otel.conventions import has_call_attributes, parse_call, request_key
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
PARTLY_LOGGED: Final = "request not logged whole"
NOT_UNDERSTOOD: Final = "content not understood"
UNKNOWN_HISTORY: Final = "unknown history"
SPANS_MISSING: Final = "spans missing"
SPANS_UNASSIGNED: Final = "spans unassigned"
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
    PARTLY_LOGGED: (
        "LLM calls whose log does not tell all that was sent; calls[].extra names what (docs/how-to/coding-agents.md)"
    ),
    NOT_UNDERSTOOD: (
        "completions whose text or tool calls were lost, as the finish reason or a later prompt shows (record the calls"
        " with another instrumentor, or report the attributes they are in)"
    ),
    CONTENT_LOST: (
        "calls of which the recorder lost texts or tool calls (record them with the instrumentor of the client)"
    ),
    CONTENT_REWRITTEN: (
        "calls whose recorder shows other messages than were sent, such as thoughts as text or several messages as one"
        " (record them with the instrumentor of the client)"
    ),
    CONTENT_TRUNCATED: "calls whose recorder cut texts, as it says itself (raise its limit)",
    LIST_HOLES: (
        "calls with flattened lists that do not begin at 0 or have gaps, where the recorder left out what it does not"
        " know (update it, or record with the instrumentor of the client)"
    ),
    UNKNOWN_PARTS: "calls with message parts of types that this version does not know (report them)",
    UNKNOWN_HISTORY: "calls that continue a response nobody recorded, or too long a history",
    SPANS_MISSING: "spans that the rollout counted and the sources do not hold",
    SPANS_UNASSIGNED: (
        "calls and tools that may be of this or of another attempt under its id (pass the trace on to the service that"
        " recorded them, or set art.rollout.attempt on them)"
    ),
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

    `call_of` leads from each inference span to the span id of its call. `unresolved_histories` counts calls that
    continue a response nobody recorded. `lost_spans` and `lost_values` count the spans and values that were
    quarantined. `unassigned` counts calls and tools that may be of this rollout or of another attempt. `bad_rewards`
    counts the spans with a bad reward.
    """

    root: Span | None
    spans: Sequence[Span]
    lineage: Lineage
    call_of: Mapping[SpanKey, str]
    unresolved_histories: int
    lost_spans: int
    lost_values: int
    unassigned: int
    bad_rewards: int


def find_incomplete(evidence: Evidence, tree: SpanTree) -> dict[str, int]:
    """Count what is missing by reason, in the order of EXPLANATIONS. Empty means complete."""
    root, spans, calls = evidence.root, evidence.spans, evidence.lineage.calls
    losing = [
        span for span in spans if _has_dropped_data(span) and _matters(span, root) and span.key not in evidence.call_of
    ]
    counts = {
        MISSING_ROOT: int(root is None),
        MISSING_PARENT: sum(span.key in tree.orphans and span is not root for span in spans) if tree.orphans else 0,
        NOT_ENDED: sum(span.end_ns is None for span in spans),
        ATTRIBUTES_DROPPED: sum(span.dropped_attributes_count for span in losing)
        + sum(call.dropped_attributes for call in calls),
        EVENTS_DROPPED: sum(span.dropped_events_count for span in losing),
        CUT_JSON: sum(len(call.cut) for call in calls if not call.dropped_attributes),
        NO_CONTENT: sum(map(_lacks_content, calls)) + _overwritten_calls(spans, calls),
        PARTLY_LOGGED: sum(attributes.MISSING in call.extra for call in calls),
        NOT_UNDERSTOOD: _not_understood(evidence.lineage),
        **_doubts(calls),
        UNKNOWN_HISTORY: evidence.unresolved_histories,
        SPANS_MISSING: missing_spans(root, spans),
        SPANS_UNASSIGNED: evidence.unassigned,
        SPAN_QUARANTINED: evidence.lost_spans,
        VALUE_QUARANTINED: evidence.lost_values,
        BAD_REWARD: evidence.bad_rewards,
    }
    return {reason: counts[reason] for reason in EXPLANATIONS if counts[reason]}


def _doubts(calls: Sequence[InferenceCall]) -> dict[str, int]:
    """Count the calls by what is doubted about them."""
    doubts = [doubt for call in calls if call.doubts for doubt in set(call.doubts)]
    return {doubt: doubts.count(doubt) for doubt in DOUBTS}


def is_without_content(call: InferenceCall) -> bool:
    """Whether nothing of the conversation was captured, unless another reason already counts it."""
    return call.input_messages is None and call.choices is None and not _has_known_cause(call)


def _has_known_cause(call: InferenceCall) -> bool:
    """Whether what is unknown of a call may have been dropped, cut or lost, which are reasons of their own."""
    return bool(call.dropped_attributes or call.cut or call.doubts)


def _lacks_content(call: InferenceCall) -> bool:
    """Whether the prompt or a successful call's completion is unknown, unless another reason already counts it."""
    if _has_known_cause(call):
        return False
    prompt_unknown = call.input_messages is None and call.prompt_token_ids is None and call.previous_response_id is None
    return prompt_unknown or (call.choices is None and not call.failed)


def _not_understood(lineage: Lineage) -> int:
    """Count completions that say less than was sampled, unless another reason already counts them."""
    return sum(
        turn.untrained == "content doubtful" and not _has_known_cause(lineage.calls[turn.call])
        for turn in lineage.turns
    )


def _has_dropped_data(span: Span) -> bool:
    return bool(span.dropped_attributes_count or span.dropped_events_count)


def _matters(span: Span, root: Span | None) -> bool:
    """Whether what is dropped from this span can be missed in the trajectory."""
    return (
        span is root or attributes.STEP_INDEX in span.attributes or span.name.startswith(attributes.REWARD_SPAN_PREFIX)
    )


def _overwritten_calls(spans: Iterable[Span], calls: Sequence[InferenceCall]) -> int:
    """Count calls that were lost because LiteLLM writes its calls onto our current span and overwrites the one before.

    A call on our span is lost if no other span records it, by the response id or, where that is unknown, the prompt.
    """
    written = [parse_call(span) for span in spans if has_call_attributes(span)]
    if not written:
        return 0
    answered = {call.response_id for call in calls if call.response_id is not None}
    asked = {request_key(call) for call in calls}
    asked_without_id = {request_key(call) for call in calls if call.response_id is None}
    return sum(
        call.response_id not in answered and request_key(call) not in (asked_without_id if call.response_id else asked)
        for call in written
    )
