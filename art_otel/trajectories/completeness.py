"""Completeness: what is missing from a trajectory, by reason.

Invariant: a trajectory is complete only when nothing is known to be missing; every reason has a count of at least one.
A reason is a gap in the recording and its cause: what the agent did, failed calls included, is a fact and no gap. What
is missing in the content of calls is `wholeness`' subject; here is added what is missing among the spans, and among the
calls that later prompts show. A span that was quarantined several times for one reason is one loss; a span that was
also delivered whole is none. Only spans of the process that counted are compared with its counts
(`art.rollout.spans.started` and `.ended` on the rollout's own span, of each gateway `art.rollout.calls.<instance>`): a
span that another service adds to the rollout replaces none that was lost.

Whoever trains token ids asks for the reasons that concern them, and whoever trains text for those that concern text
(`concern_of`): a text that a recorder lost takes nothing from the ids that the server gave.

To add a reason: a constant, its line in EXPLANATIONS (what it counts and what to do), and its count in
`find_incomplete`. What is missing among spans concerns both ids and text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import has_call_attributes, parse_call, request_key, role_of
from art_otel.spans import Quarantined, Resource, Span, SpanKey, SpanTree
from art_otel.trajectories.lineage import Lineage
from art_otel.trajectories.span_context import (
    calls_counted_on,
    is_reward_span,
    may_be_instance,
    may_be_one_process,
    spans_counted_on,
)
from art_otel.trajectories.trees import last_turn
from art_otel.trajectories.wholeness import REASONS, Concern, count_gaps, what_is_said

MISSING_ROOT: Final = "missing root"
MISSING_PARENT: Final = "missing parent"
NOT_ENDED: Final = "not ended"
ATTRIBUTES_DROPPED: Final = "rollout attributes dropped"
EVENTS_DROPPED: Final = "events dropped"
OVERWRITTEN_CALL: Final = "call overwritten"
MISSING_CALL: Final = "call missing"
UNREAD_REQUEST: Final = "request unread"
UNSAMPLED_ANSWER: Final = "unsampled answer"
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
    ATTRIBUTES_DROPPED: (
        "rollouts, steps and rewards of which the SDK dropped attributes (raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT)"
    ),
    EVENTS_DROPPED: "events the SDK dropped (raise OTEL_SPAN_EVENT_COUNT_LIMIT)",
    OVERWRITTEN_CALL: (
        "calls that LiteLLM's callback wrote onto one span, each over the one before (record them with an instrumentor)"
    ),
    MISSING_CALL: (
        "answers with tool calls that later prompts repeat and no recorded call gave: their calls were lost on the way"
        " (raise the exporter's time-out and queue; docs/how-to/receive.md)"
    ),
    UNREAD_REQUEST: (
        "requests that a gateway passed on unrecorded, because they may have asked for a completion in a dialect that"
        " it does not know (docs/how-to/gateway.md says which it knows)"
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

_ORDER: Final = {reason: place for place, reason in enumerate(EXPLANATIONS)}


_CONCERNS: Final[Mapping[str, Concern]] = {
    one.reason: one.concern for one in REASONS.values() if one.reason is not None
}


def concern_of(reason: str) -> Concern:
    """Whether a reason concerns token ids, text, or both; one that this version does not know concerns both."""
    return _CONCERNS.get(reason, "both")


def explain(reason: str) -> str:
    """What a reason counts; datasets of other versions may have others."""
    return EXPLANATIONS.get(reason, "a reason that this version does not know")


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Lost spans by trace id, and by key where that is known. `values` are spans that were kept without a value."""

    spans: Mapping[str, int]
    keyed_spans: Mapping[SpanKey, int]
    values: frozenset[SpanKey]

    def of(self, spans: Sequence[Span]) -> tuple[int, int]:
        """Count the spans lost in the traces of these spans, and those of these spans that lost a value."""
        if not self.spans and not self.values:
            return 0, 0
        keys = {span.key for span in spans}
        lost = sum(self.spans.get(trace_id, 0) for trace_id in {trace_id for trace_id, _ in keys})
        delivered_whole = sum(self.keyed_spans.get(key, 0) for key in keys)
        return lost - delivered_whole, len(keys & self.values)


_NO_LOSSES: Final = Losses(spans={}, keyed_spans={}, values=frozenset())


def find_losses(quarantine: Iterable[Quarantined]) -> Losses:
    """Index what was quarantined by what it took."""
    lost: set[tuple[str, str | None, str]] = set()
    values: set[SpanKey] = set()
    for entry in quarantine:
        trace_id, span_id = entry.trace_id, entry.span_id
        if trace_id is None:
            continue
        if not entry.partial:
            lost.add((trace_id, span_id, entry.reason))
        elif span_id is not None:
            values.add((trace_id, span_id))
    if not lost and not values:
        return _NO_LOSSES
    keyed = Counter((trace_id, span_id) for trace_id, span_id, _ in lost if span_id is not None)
    return Losses(spans=Counter(trace_id for trace_id, _, _ in lost), keyed_spans=keyed, values=frozenset(values))


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one rollout, and what was lost of it: its own span, its spans and its lineage.

    `call_of` leads from each inference span to the span id of its call. `lost_spans` and `lost_values` count the spans
    and values that were quarantined. `unassigned` counts calls and tools that may be of this rollout or of another
    attempt. `bad_rewards` counts rewards that are no number, or that
    judge what the rollout does not have.
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
    root, spans, calls = evidence.root, evidence.spans, evidence.lineage.recorded
    losing = [
        span for span in spans if _has_dropped_data(span) and _matters(span, root) and span.key not in evidence.call_of
    ]
    gaps = count_gaps(calls)
    dropped = sum(span.dropped_attributes_count > 0 for span in losing)
    begun_calls = {} if root is None else calls_counted_on(root)
    span_count = None if root is None else spans_counted_on(root)
    # A rollout that counted its spans, and has them all, lost no call: then the app wrote the answer itself.
    is_counted = span_count is not None or bool(begun_calls)
    counts = {
        MISSING_ROOT: int(root is None),
        MISSING_PARENT: _lost_parents(evidence, tree) if tree.orphans else 0,
        NOT_ENDED: [span.end_ns for span in spans].count(None),
        **gaps,
        ATTRIBUTES_DROPPED: dropped,
        OVERWRITTEN_CALL: _overwritten_calls(spans, calls),
        UNREAD_REQUEST: sum(
            [_is_unread(span, evidence, tree) for span in spans if attributes.UNREAD_REQUEST in span.attributes]
        ),
        EVENTS_DROPPED: sum(span.dropped_events_count for span in losing),
        **({} if is_counted or len(calls) < 2 else _count_unsampled(evidence.lineage)),
        SPANS_MISSING: 0 if root is None else _missing_spans(root, spans, span_count, begun_calls),
        SPANS_UNASSIGNED: evidence.unassigned,
        SPAN_QUARANTINED: evidence.lost_spans,
        VALUE_QUARANTINED: evidence.lost_values,
        BAD_REWARD: evidence.bad_rewards,
    }
    missing = [reason for reason, count in counts.items() if count]
    return {reason: counts[reason] for reason in sorted(missing, key=_ORDER.__getitem__)}


def _lost_parents(evidence: Evidence, tree: SpanTree) -> int:
    """Count the spans whose missing parent may have been a call, or have said of what agent or step a call is.

    A request without its parent may have been that of a lost call, if not one to the process of the calls itself. Any
    other span, with nothing of the rollout below it, shows only that another of these is missing.
    """
    above: set[SpanKey] = set()
    apps: list[Resource] = []
    for span in evidence.spans:
        if span.key in evidence.call_of and span.resource.attributes and span.resource not in apps:
            apps.append(span.resource)
        if span.key in evidence.call_of or _matters(span, evidence.root) or role_of(span) != "other":
            key: SpanKey | None = span.key
            while key is not None and key not in above:
                above.add(key)
                key = tree.parents.get(key)
    return sum(
        span.key in tree.orphans and span is not evidence.root and (span.key in above or _may_be_request(span, apps))
        for span in evidence.spans
    )


def _may_be_request(span: Span, apps: Sequence[Resource]) -> bool:
    if span.kind == "internal" or (span.kind == "server" and span.resource in apps):
        return False
    return not any(name.startswith("db.") for name in span.attributes)


def _has_dropped_data(span: Span) -> bool:
    return bool(span.dropped_attributes_count or span.dropped_events_count)


def _matters(span: Span, root: Span | None) -> bool:
    """Whether what is dropped from this span can be missed in the trajectory."""
    return span is root or attributes.STEP_INDEX in span.attributes or is_reward_span(span)


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


def _is_unread(span: Span, evidence: Evidence, tree: SpanTree) -> bool:
    """Whether no call around a gateway's span of a request that it could not read tells what was asked."""
    key: SpanKey | None = span.key
    while key is not None and key not in evidence.call_of:
        key = tree.parents.get(key)
    return key is None


def _missing_spans(root: Span, spans: Iterable[Span], span_count: int | None, begun_calls: Mapping[str, int]) -> int:
    """How many spans of the rollout are missing below its own span, as far as that counted them."""
    if span_count is None and not begun_calls:
        return 0
    below = [span for span in spans if span is not root]
    missing = sum(
        max(0, began - sum(may_be_instance(span.resource, gateway) for span in below))
        for gateway, began in begun_calls.items()
    )
    if span_count is None:
        return missing
    return missing + max(0, span_count - sum(_is_counted(span, root) for span in below))


def _is_counted(span: Span, root: Span) -> bool:
    """Whether the process of the root counted the span: it is of the same process, and not a standalone reward."""
    declared = span.attributes.get(attributes.ROLLOUT_ID)
    if declared is not None and declared != root.attributes.get(attributes.ROLLOUT_ID):
        return False  # of a service whose process did not know the rollout and made up an id
    if span.trace_id != root.trace_id and _is_standalone_reward(span):
        return False
    return may_be_one_process(span.resource, root.resource)


def _is_standalone_reward(span: Span) -> bool:
    """Whether the span is a reward outside every rollout's tree, which no rollout counts."""
    return is_reward_span(span) and (bool(span.links) or span.parent_span_id is None)


def _count_unsampled(lineage: Lineage) -> dict[str, int]:
    """Count the assistant's messages behind a recorded completion that no recorded call sampled, by reason.

    A call is missing where such a message calls tools; where it is a text, the app may have written it itself. A prompt
    that begins with such messages (few-shot examples) continues no completion, and one whose recorded answer the app
    changed has the call. So has an answer that the app repeats behind other messages, as filters of handoffs do. The
    last message of a prompt is a prefill.
    """
    behind = list(_behind_completions(lineage))
    if not behind:
        return {}
    calls = lineage.recorded
    prefixes = [lineage.numbers.of(call.input_messages or ()) for call in calls]
    asked = {its_prefixes[-1] for its_prefixes in prefixes}
    recorded = {what_is_said(choice.message) for call in calls for choice in call.choices or ()}
    unsampled = {
        prefixes[index][at + 1]: message
        for index, at in behind
        if prefixes[index][at] not in asked
        and what_is_said(message := (calls[index].input_messages or ())[at]) not in recorded
    }
    missing = sum(bool(message.tool_calls) for message in unsampled.values())
    counts = {MISSING_CALL: missing, UNSAMPLED_ANSWER: len(unsampled) - missing}
    return {reason: count for reason, count in counts.items() if count}


def _behind_completions(lineage: Lineage) -> Iterator[tuple[int, int]]:
    """The positions of assistant's messages in prompts, behind the completion that the prompt continues."""
    calls, turns = lineage.recorded, lineage.turns
    for index, (recorded, call) in enumerate(zip(calls, lineage.calls, strict=True)):
        parent = last_turn(call.prompt_node)
        if parent is None:
            continue
        messages = recorded.input_messages or ()
        path = len(calls[turns[parent].call].input_messages or ()) + 1
        for at in range(path, len(messages) - 1):
            if messages[at].role == "assistant":
                yield index, at
