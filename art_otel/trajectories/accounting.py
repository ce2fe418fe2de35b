"""Accounting: what is missing from a trajectory, by reason, and where every record of the assembled groups went.

Invariant of `find_incomplete`: a trajectory is complete only when nothing is known to be missing; every reason has a
count of at least one. A reason is a gap in the recording and its cause: what the agent did, failed calls included, is a
fact and no gap. What is missing in the content of calls is `wholeness`' subject; here is added what is missing among
the spans. A span that was quarantined several times for one reason is one loss; a span that was also delivered whole is
none. Only spans of the process that counted are compared with its counts (`art.rollout.spans.started` and `.ended` on
the rollout's own span): a span that another service adds to the rollout replaces none that was lost.

To add a reason: a constant, its line in EXPLANATIONS (what it counts and what to do), and its count in
`find_incomplete`.

Invariant of `AssemblyStats`: every record of a group is counted once, stats of groups add up, in whatever order, and
these sums hold:

    spans               = used + ignored (by reason) + duplicate + quarantined (by reason) + waiting
    targets of rewards  = delivered + undeliverable (by reason)

A span of which only a value was quarantined is counted as that although the rest of it serves; so are log records, in
counts of their own. A span that gives a reward for something else is used, also outside every rollout.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, Literal, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import Role, has_call_attributes, parse_call, request_key, role_of
from art_otel.spans import LogRecord, Quarantined, Resource, Span, SpanKey, SpanTree, extend_sorted
from art_otel.spans.span import Kind
from art_otel.spans.tree import deduplicate, take_out_cycles
from art_otel.trajectories.lineage import Lineage
from art_otel.trajectories.model import Trajectory
from art_otel.trajectories.rewards import Attribution
from art_otel.trajectories.rollouts import RolloutAssignment
from art_otel.trajectories.span_context import CorrelatedLogs, is_reward_span, may_be_one_process, spans_counted_on
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
    attempt. `bad_rewards` counts the bad rewards.
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
        SPANS_MISSING: _missing_spans(root, spans),
        SPANS_UNASSIGNED: evidence.unassigned,
        SPAN_QUARANTINED: evidence.lost_spans,
        VALUE_QUARANTINED: evidence.lost_values,
        BAD_REWARD: evidence.bad_rewards,
    }
    return {reason: counts[reason] for reason in EXPLANATIONS if counts.get(reason)}


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


def is_without_content(call: InferenceCall) -> bool:
    """Whether nothing of the conversation was captured, and nothing says that it was lost."""
    is_unknown = call.input_messages is None and call.choices is None
    return is_unknown and all(gap.kind == "off" for gap in call.gaps)


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


def _missing_spans(root: Span | None, spans: Iterable[Span]) -> int:
    """How many spans of the rollout are missing below its own span, as far as that counted them."""
    expected = None if root is None else spans_counted_on(root)
    if root is None or expected is None:
        return 0
    here = sum(span is not root and _is_counted(span, root) for span in spans)
    return max(0, expected - here)


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


EMBEDDINGS: Final = "embeddings"
RETRIEVAL: Final = "response retrieval"
NO_CALL: Final = "no LLM call in its trace"
OUTSIDE: Final = "outside every rollout"
UNASSIGNED: Final = "unassigned"
UNCAPTURED: Final = "call without content, alone in its trace"
STARTED: Final = "start of a span that ended"


Verdict: TypeAlias = Literal["new", "known", "waiting"]
"""What becomes of a trajectory: it is given, it was given before as it is, or more of it is expected."""


@dataclass(kw_only=True, slots=True)
class AssemblyStats:
    """Counts of spans, log records, rewards, calls and trajectories.

    `quarantine` lists what assembly itself quarantined. By instrumentation scope, `calls_without_content` counts calls
    without any message, `spans_without_calls` the spans of traces without an LLM call. `outside_roots` counts the root
    spans of traces with LLM calls that are no rollout, by name. `waiting` are spans of rollouts of which more is
    expected, `again` those of all spans that an earlier conversion read, as `logs_again` those of all log records.
    """

    used: int = 0
    waiting: int = 0
    again: int = 0
    duplicate: int = 0
    ignored: Counter[str] = field(default_factory=Counter[str])
    quarantined: Counter[str] = field(default_factory=Counter[str])
    quarantined_logs: Counter[str] = field(default_factory=Counter[str])
    quarantine: list[Quarantined] = field(default_factory=list[Quarantined])
    logs_again: int = 0
    logs_joined: int = 0
    logs_duplicate: int = 0
    logs_without_span: int = 0
    rewards_delivered: int = 0
    rewards_undeliverable: Counter[str] = field(default_factory=Counter[str])
    calls_completed: int = 0
    calls_failed: int = 0
    calls_without_content: Counter[str] = field(default_factory=Counter[str])
    spans_without_calls: Counter[str] = field(default_factory=Counter[str])
    outside_roots: Counter[str] = field(default_factory=Counter[str])
    trajectories: int = 0
    complete: int = 0
    incomplete: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "AssemblyStats") -> None:
        """Add another group's counts to these."""
        for count in fields(self):
            if count.name == "quarantine":
                continue
            total = getattr(self, count.name)
            total += getattr(other, count.name)
            setattr(self, count.name, total)
        extend_sorted(self.quarantine, other.quarantine)

    def quarantine_trace(self, trace_id: str, *, spans: int, logs: int, detail: str) -> None:
        """Count a trace that is beyond a limit; all its records are quarantined."""
        entry = Quarantined(reason="over a limit", path=f"trace {trace_id}", detail=detail, trace_id=trace_id)
        self.quarantined[entry.reason] += spans
        self.quarantined_logs[entry.reason] += logs
        extend_sorted(self.quarantine, (entry,))


class AssembledGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What assembly made of a group: a trajectory and a verdict for each rollout."""

    tree: SpanTree
    roles: Mapping[SpanKey, Role]
    logs: CorrelatedLogs
    assignment: RolloutAssignment
    attribution: Attribution
    trajectories: Sequence[Trajectory]
    verdicts: Sequence[Verdict]


def count_group(
    stats: AssemblyStats, group: AssembledGroup, logs: Iterable[LogRecord], quarantine: Sequence[Quarantined]
) -> None:
    """Count a group. `logs` are all deliveries of its log records, `quarantine` came from the sources."""
    _count_logs(stats, group.logs)
    _count_logs_without_a_value(stats, logs, group.tree, quarantine)
    _count_spans(stats, group, quarantine)
    stats.rewards_delivered += group.attribution.delivered
    stats.rewards_undeliverable += group.attribution.undeliverable
    _count_trajectories(stats, group)


def count_idle_spans(stats: AssemblyStats, spans: Sequence[Span]) -> None:
    """Count spans of whole traces that hold no call, no rollout and no reward, without building their tree."""
    unique = deduplicate(spans)
    _count_repeated(stats, len(spans) - len(unique.deliveries), sum(unique.start_only.values()))
    cyclic = take_out_cycles(unique.spans)
    if unique.spans:
        stats.ignored[NO_CALL] += len(unique.spans)
    stats.spans_without_calls.update(map(attrgetter("scope.name"), unique.spans.values()))
    for entry in cyclic:
        stats.quarantined[entry.reason] += 1
    extend_sorted(stats.quarantine, cyclic)


def _count_logs(stats: AssemblyStats, logs: CorrelatedLogs) -> None:
    stats.logs_joined += logs.joined
    stats.logs_duplicate += logs.duplicate
    stats.logs_without_span += len(logs.others)


def _count_logs_without_a_value(
    stats: AssemblyStats, logs: Iterable[LogRecord], tree: SpanTree, quarantine: Iterable[Quarantined]
) -> None:
    """Count log records that lost a value as quarantined, and not as what else they are.

    An entry names the span of its record only: of a span's records as many are quarantined as there are entries.
    """
    reasons = _lost_values(quarantine, "log")
    deliveries: dict[SpanKey, list[bytes]] = {}
    for log in logs if reasons else ():
        if log.key in reasons:
            deliveries.setdefault(log.key, []).append(msgspec.msgpack.encode(log, order="deterministic"))
    for key, encoded in deliveries.items():
        quarantined = min(len(encoded), len(reasons[key]))
        repeated = min(len(encoded) - len(set(encoded)), quarantined)
        stats.quarantined_logs[min(reasons[key])] += quarantined
        stats.logs_duplicate -= repeated
        if key in tree.spans:
            stats.logs_joined -= quarantined - repeated
        else:
            stats.logs_without_span -= quarantined - repeated


def _count_spans(stats: AssemblyStats, group: AssembledGroup, quarantine: Iterable[Quarantined]) -> None:
    tree, roles, attribution = group.tree, group.roles, group.attribution
    lost_values = _lost_values(quarantine, "span")
    bad = {(entry.trace_id, entry.span_id): entry.reason for entry in (*attribution.bad, *tree.cyclic)}
    traces_with_calls = {trace_id for (trace_id, _), role in roles.items() if role == "inference"}
    verdicts = zip(group.assignment.rollouts, group.verdicts, strict=True)
    waiting = {id(rollout) for rollout, verdict in verdicts if verdict == "waiting"}
    for key, count in tree.deliveries.items():
        deliveries = count
        if key in lost_values:
            quarantined = min(count, len(lost_values[key]))
            stats.quarantined[min(lost_values[key])] += quarantined
            deliveries -= quarantined
            if not deliveries:
                continue
        if deliveries > 1:
            _count_repeated(stats, deliveries - 1, tree.start_only.get(key, 0))
        if key in bad:
            stats.quarantined[bad[key]] += 1
            continue
        rollout = group.assignment.of[key]
        if id(rollout) in waiting:
            stats.waiting += 1
            continue
        is_used = rollout is not None or key in attribution.senders
        reason = _ignored_because(key, group, traces_with_calls, is_used=is_used)
        if reason is None:
            stats.used += 1
        else:
            _count_ignored(stats, tree.spans[key], reason)
    extend_sorted(stats.quarantine, (*tree.cyclic, *attribution.bad))


def _lost_values(quarantine: Iterable[Quarantined], kind: Kind) -> dict[tuple[str | None, str | None], list[str]]:
    """The reasons why values of kept records of a kind were quarantined, by the records' spans."""
    reasons: dict[tuple[str | None, str | None], list[str]] = {}
    for entry in quarantine:
        if entry.partial and entry.kind == kind:
            reasons.setdefault((entry.trace_id, entry.span_id), []).append(entry.reason)
    return reasons


def _count_repeated(stats: AssemblyStats, repeated: int, start_only: int) -> None:
    """Deliveries besides the one that serves: records of starts as far as there were, else duplicates."""
    starts = min(repeated, start_only)
    if starts:
        stats.ignored[STARTED] += starts
    stats.duplicate += repeated - starts


def _ignored_because(
    key: SpanKey, group: AssembledGroup, traces_with_calls: Collection[str], *, is_used: bool
) -> str | None:
    role = group.roles[key]
    if role == "embeddings":
        return EMBEDDINGS
    if role == "retrieval":
        return RETRIEVAL
    if is_used:
        return None
    if role == "uncaptured":
        return UNCAPTURED
    if key in group.assignment.unassigned:
        return UNASSIGNED
    return OUTSIDE if key[0] in traces_with_calls else NO_CALL


def _count_ignored(stats: AssemblyStats, span: Span, reason: str) -> None:
    stats.ignored[reason] += 1
    if reason == NO_CALL:
        stats.spans_without_calls[span.scope.name] += 1
    if reason == OUTSIDE and span.parent_span_id is None:
        stats.outside_roots[span.name] += 1


def _count_trajectories(stats: AssemblyStats, group: AssembledGroup) -> None:
    for trajectory, verdict in zip(group.trajectories, group.verdicts, strict=True):
        if verdict != "new":
            continue
        stats.trajectories += 1
        stats.complete += trajectory.complete
        stats.incomplete.update(trajectory.incomplete_reasons.keys())
        completed = [call for call in trajectory.calls if not call.failed]
        stats.calls_completed += len(completed)
        stats.calls_failed += len(trajectory.calls) - len(completed)
        for call in completed:
            if is_without_content(call):
                stats.calls_without_content[group.tree.spans[call.trace_id, call.span_id].scope.name] += 1
