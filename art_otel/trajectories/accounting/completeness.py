"""Completeness: everything that is known to be missing from a trajectory, by reason.

Invariant: a trajectory is complete only when nothing is known to be missing; every reason has a count of at least one.
A reason is a gap in the recording and its cause: what the agent did, failed calls included, is a fact and no gap. What
is missing in the content of calls is `wholeness`' subject; this module adds what is missing among the spans.

To add a reason: a constant, its line in EXPLANATIONS (what it counts and what to do), and its count in
`find_incomplete`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import has_call_attributes, parse_call, request_key, role_of
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.accounting.span_counts import missing_spans, spans_counted_on
from art_otel.trajectories.lineage.turns import Lineage
from art_otel.trajectories.wholeness import MISSING_CALL, REASONS, UNSAMPLED_ANSWER, count_gaps, count_unsampled

MISSING_ROOT: Final = "missing root"
MISSING_PARENT: Final = "missing parent"
NOT_ENDED: Final = "not ended"
EVENTS_DROPPED: Final = "events dropped"
ATTRIBUTES_DROPPED: Final = "attributes dropped"
NO_CONTENT: Final = "no content"
SPANS_MISSING: Final = "spans missing"
SPANS_UNASSIGNED: Final = "spans unassigned"
SPAN_QUARANTINED: Final = "span quarantined"
VALUE_QUARANTINED: Final = "value quarantined"
BAD_REWARD: Final = "bad reward"

EXPLANATIONS: Final[Mapping[str, str]] = {
    MISSING_ROOT: "the rollout's own span is not in the sources",
    MISSING_PARENT: "calls, agents, tools or requests, or spans above one, whose parent is not in the sources",
    NOT_ENDED: "spans that started and never ended",
    **{one.reason: one.explanation for one in REASONS.values() if one.reason is not None},
    EVENTS_DROPPED: "events the SDK dropped (raise OTEL_SPAN_EVENT_COUNT_LIMIT)",
    MISSING_CALL: (
        "answers with tool calls that later prompts repeat and no recorded call gave: their calls were lost on the way"
        " (raise the exporter's time-out and queue; docs/how-to/receive.md)"
    ),
    UNSAMPLED_ANSWER: (
        "answers that later prompts repeat and no recorded call gave: their calls were lost, or the app wrote them"
    ),
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

    `call_of` leads from each inference span to the span id of its call. `lost_spans` and `lost_values` count the spans
    and values that were quarantined. `unassigned` counts calls and tools that may be of this rollout or of another
    attempt. `bad_rewards` counts the spans with a bad reward.
    """

    root: Span | None
    spans: Sequence[Span]
    lineage: Lineage
    call_of: Mapping[SpanKey, str]
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
    gaps = count_gaps(calls)
    dropped = sum(span.dropped_attributes_count > 0 for span in losing)
    # A rollout that counted its spans, and has them all, lost no call: then the app wrote the answer itself.
    is_counted = root is not None and spans_counted_on(root) is not None
    counts = {
        MISSING_ROOT: int(root is None),
        MISSING_PARENT: _lost_parents(evidence, tree) if tree.orphans else 0,
        NOT_ENDED: sum(span.end_ns is None for span in spans),
        **gaps,
        ATTRIBUTES_DROPPED: gaps.get(ATTRIBUTES_DROPPED, 0) + dropped,
        NO_CONTENT: gaps.get(NO_CONTENT, 0) + _overwritten_calls(spans, calls),
        EVENTS_DROPPED: sum(span.dropped_events_count for span in losing),
        **({} if is_counted else count_unsampled(*evidence.lineage)),
        SPANS_MISSING: missing_spans(root, spans),
        SPANS_UNASSIGNED: evidence.unassigned,
        SPAN_QUARANTINED: evidence.lost_spans,
        VALUE_QUARANTINED: evidence.lost_values,
        BAD_REWARD: evidence.bad_rewards,
    }
    return {reason: counts[reason] for reason in EXPLANATIONS if counts.get(reason)}


def _lost_parents(evidence: Evidence, tree: SpanTree) -> int:
    """Count the spans whose missing parent may have been a call, or have said of what agent or step a call is.

    A request without its parent may have been that of a lost call. Any other span of the app's own, with nothing of the
    rollout below it, shows only that another of these is missing.
    """
    above: set[SpanKey] = set()
    for span in evidence.spans:
        if span.key in evidence.call_of or _matters(span, evidence.root) or role_of(span) != "other":
            key: SpanKey | None = span.key
            while key is not None and key not in above:
                above.add(key)
                key = tree.parents.get(key)
    return sum(
        span.key in tree.orphans and span is not evidence.root and (span.key in above or _may_be_request(span))
        for span in evidence.spans
    )


def _may_be_request(span: Span) -> bool:
    return span.kind != "internal" and not any(name.startswith("db.") for name in span.attributes)


def is_without_content(call: InferenceCall) -> bool:
    """Whether nothing of the conversation was captured, and nothing says that it was lost."""
    is_unknown = call.input_messages is None and call.choices is None
    return is_unknown and all(gap.kind == "off" for gap in call.gaps)


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
