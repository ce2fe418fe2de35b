"""Completeness: everything that is known to be missing from a trajectory, by reason.

Invariant: a trajectory is complete only when nothing is known to be missing; every reason has a count of at least one.
A reason is a cause: a prompt that is unknown because attributes were dropped counts as that and not as missing content.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import asked_of, holds_call, integer, parse_call
from art_otel.spans import Quarantined, Span, SpanKey, SpanTree

MISSING_ROOT: Final = "missing root"
MISSING_PARENT: Final = "missing parent"
NOT_ENDED: Final = "not ended"
ATTRIBUTES_DROPPED: Final = "attributes dropped"
EVENTS_DROPPED: Final = "events dropped"
CUT_JSON: Final = "cut JSON"
FAILED_CALL: Final = "failed call"
NO_CONTENT: Final = "no content"
STREAM_NOT_FINISHED: Final = "stream not finished"
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
    FAILED_CALL: "LLM calls that ended in an error",
    NO_CONTENT: "LLM calls of which nobody recorded prompt or completion (was content capture on?)",
    STREAM_NOT_FINISHED: "streams that ended without a finish reason (closed early, or broken)",
    UNKNOWN_HISTORY: "calls that continue a response nobody recorded, or too long a history",
    SPANS_MISSING: "spans that the rollout counted and the sources do not hold",
    SPAN_QUARANTINED: "damaged spans of its trace",
    VALUE_QUARANTINED: "damaged values in its spans",
    BAD_REWARD: "rewards in it that are no number, or judge what it does not have",
}
"""What each reason counts, in words for people."""


def explain(reason: str) -> str:
    """What a reason counts; datasets of other versions may have others."""
    return EXPLANATIONS.get(reason, "a reason that this version does not know")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the other budgets found out about one rollout.

    `lost`, `damaged_values` and `bad_rewards` count quarantined pieces, `cut` what the rollout is told and is too long.
    """

    root: Span | None
    spans: Sequence[Span]
    calls: Sequence[InferenceCall]
    call_of: Mapping[SpanKey, str]
    unresolved: int
    lost: int
    damaged_values: int
    bad_rewards: int
    cut: int


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What damages took from a group. `spans` counts lost spans by trace id, and by key those whose key is known.

    `values` are the spans that were kept without a value.
    """

    spans: Mapping[str, int]
    keyed: Mapping[SpanKey, int]
    values: frozenset[SpanKey]

    def of(self, spans: Sequence[Span]) -> tuple[int, int]:
        """How many spans of the rollout's traces were lost, and how many of its own lost a value."""
        if not self.spans and not self.values:
            return 0, 0
        keys = {span.key for span in spans}
        lost = sum(self.spans.get(trace_id, 0) for trace_id in {trace_id for trace_id, _ in keys})
        delivered_whole = sum(self.keyed.get(key, 0) for key in keys)
        return lost - delivered_whole, len(keys & self.values)


_NO_LOSSES: Final = Losses(spans={}, keyed={}, values=frozenset())


def find_losses(damages: Iterable[Quarantined]) -> Losses:
    """Index damages by what they took. A span that was lost several times for one reason counts once."""
    lost: set[tuple[str, str | None, str]] = set()
    values: set[SpanKey] = set()
    for damage in damages:
        trace_id, span_id = damage.trace_id, damage.span_id
        if trace_id is None:
            continue
        if not damage.partial:
            lost.add((trace_id, span_id, damage.reason))
        elif span_id is not None:
            values.add((trace_id, span_id))
    if not lost and not values:
        return _NO_LOSSES
    keyed = Counter((trace_id, span_id) for trace_id, span_id, _ in lost if span_id is not None)
    return Losses(spans=Counter(trace_id for trace_id, _, _ in lost), keyed=keyed, values=frozenset(values))


def find_incomplete(evidence: Evidence, tree: SpanTree) -> dict[str, int]:
    """Count what is missing by reason, in the order of EXPLANATIONS. Empty means complete."""
    root, spans = evidence.root, evidence.spans
    counts = {
        MISSING_ROOT: int(root is None),
        MISSING_PARENT: sum(span.key in tree.orphans and span is not root for span in spans) if tree.orphans else 0,
        UNKNOWN_HISTORY: evidence.unresolved,
        SPANS_MISSING: _below_certificate(root, spans),
        SPAN_QUARANTINED: evidence.lost,
        VALUE_QUARANTINED: evidence.damaged_values,
        BAD_REWARD: evidence.bad_rewards,
    }
    _count_in_spans(evidence, counts)
    _count_in_calls(evidence.calls, counts)
    counts[CUT_JSON] += evidence.cut
    counts[NO_CONTENT] += _overwritten(spans, evidence.calls)
    return {reason: counts[reason] for reason in EXPLANATIONS if counts[reason]}


def _count_in_spans(evidence: Evidence, counts: dict[str, int]) -> None:
    not_ended = attributes_dropped = events_dropped = 0
    for span in evidence.spans:
        not_ended += span.end_ns is None
        dropped = span.dropped_attributes_count or span.dropped_events_count
        if dropped and _matters(span, evidence.root) and span.key not in evidence.call_of:
            attributes_dropped += span.dropped_attributes_count
            events_dropped += span.dropped_events_count
    counts[NOT_ENDED] = not_ended
    counts[ATTRIBUTES_DROPPED] = attributes_dropped
    counts[EVENTS_DROPPED] = events_dropped


def _count_in_calls(calls: Iterable[InferenceCall], counts: dict[str, int]) -> None:
    cut = failed = without_content = not_finished = 0
    for call in calls:
        if call.dropped_attributes:
            counts[ATTRIBUTES_DROPPED] += call.dropped_attributes
        else:
            cut += len(call.cut)
        if call.failed:
            failed += 1
        else:
            without_content += _without_content(call)
            not_finished += _broke_off(call)
    counts[CUT_JSON] = cut
    counts[FAILED_CALL] = failed
    counts[NO_CONTENT] = without_content
    counts[STREAM_NOT_FINISHED] = not_finished


def is_blind(call: InferenceCall) -> bool:
    """Whether nothing of the conversation was captured, for no other reason that is counted."""
    return call.input_messages is None and call.choices is None and not (call.dropped_attributes or call.cut)


def _without_content(call: InferenceCall) -> bool:
    """Whether prompt or completion are unknown for no other reason that is counted."""
    if call.dropped_attributes or call.cut:
        return False
    prompt_unknown = call.input_messages is None and call.prompt_token_ids is None and call.previous_response_id is None
    return prompt_unknown or call.choices is None


def _overwritten(spans: Iterable[Span], calls: Sequence[InferenceCall]) -> int:
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


def _broke_off(call: InferenceCall) -> bool:
    return call.stream is True and any(choice.finish_reason is None for choice in call.choices or ())


def _matters(span: Span, root: Span | None) -> bool:
    """Whether what is missing on this span can be missed in the trajectory."""
    return (
        span is root or attributes.STEP_INDEX in span.attributes or span.name.startswith(attributes.REWARD_SPAN_PREFIX)
    )


def _below_certificate(root: Span | None, spans: Sequence[Span]) -> int:
    """How many spans fewer there are below the root than it counted as started or ended."""
    if root is None:
        return 0
    said = root.attributes
    if attributes.SPANS_STARTED not in said and attributes.SPANS_ENDED not in said:
        return 0
    counted = [integer(said.get(name)) for name in (attributes.SPANS_STARTED, attributes.SPANS_ENDED)]
    expected = max((count for count in counted if count is not None), default=0)
    if expected <= 0:
        return 0
    outside = sum(_is_uncounted(span, root) for span in spans)
    return max(0, expected - (len(spans) - 1 - outside))


def _is_uncounted(span: Span, root: Span) -> bool:
    """Whether the root's process did not count the span: it is given aside, or of a service that guessed another id."""
    declared = span.attributes.get(attributes.ROLLOUT_ID)
    if declared is not None and declared != root.attributes.get(attributes.ROLLOUT_ID):
        return True
    return span.trace_id != root.trace_id and _is_given_aside(span)


def _is_given_aside(span: Span) -> bool:
    """Whether the span is a reward that stands by itself, which no rollout counts."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX) and (bool(span.links) or span.parent_span_id is None)
