"""Accounting: count what became of every record of the assembled groups.

Invariant: every delivered record is counted once, so that these sums hold, also over several groups:

    spans               = used + ignored (by reason) + duplicate + quarantined (by reason) + waiting
    targets of rewards  = delivered + undeliverable (by reason)

A span that lost a value counts as quarantined although the rest of it is used; likewise a log record. A span that
carries a reward for another target counts as used, even outside of every rollout.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, Literal, TypeAlias

import msgspec

from art_otel.conventions import Role, names_model
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree, extend_sorted
from art_otel.spans.copies import deduplicate
from art_otel.spans.span import Kind
from art_otel.spans.tree import find_parents, take_out_cycles
from art_otel.trajectories.inference_calls import CorrelatedLogs
from art_otel.trajectories.model import Call, Trajectory
from art_otel.trajectories.rewards import Attribution
from art_otel.trajectories.rollouts import RolloutAssignment

EMBEDDINGS: Final = "embeddings"
RETRIEVAL: Final = "response retrieval"
NO_CALL: Final = "no LLM call in its trace"
OUTSIDE: Final = "outside every rollout"
UNASSIGNED: Final = "unassigned"
UNCAPTURED: Final = "call without content, alone in its trace"
STARTED: Final = "start of a span that ended"


IncrementalOutcome: TypeAlias = Literal["new", "known", "waiting"]
"""What becomes of a trajectory: it is written, an equal one was written before, or more of its spans are expected."""


@dataclass(kw_only=True, slots=True)
class AssemblyStats:
    """Counts of spans, log records, rewards, calls and trajectories.

    - `waiting`: spans of rollouts of which more spans are expected.
    - `again`, `logs_again`: how many of all spans and log records an earlier conversion had read.
    - `quarantine`: what assembly itself quarantined.
    - By instrumentation scope: `calls_without_content` counts calls without any message, `spans_without_calls` spans
      of traces without an LLM call, `spans_naming_models` those among the latter that name a model.
    - `outside_roots`: root spans of traces with LLM calls that are in no rollout, by name.
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
    spans_naming_models: Counter[str] = field(default_factory=Counter[str])
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
    """What assembly made of a group. `trajectories` and `outcomes` have one entry for each rollout."""

    tree: SpanTree
    roles: Mapping[SpanKey, Role]
    logs: CorrelatedLogs
    assignment: RolloutAssignment
    attribution: Attribution
    trajectories: Sequence[Trajectory]
    outcomes: Sequence[IncrementalOutcome]


def count_group(
    stats: AssemblyStats, group: AssembledGroup, logs: Iterable[LogRecord], quarantine: Sequence[Quarantined]
) -> None:
    """Add the counts of a group. `logs` are its log records with repeats; `quarantine` was found while reading."""
    tree, attribution = group.tree, group.attribution
    stats.logs_joined += group.logs.joined
    stats.logs_duplicate += group.logs.duplicate
    stats.logs_without_span += len(group.logs.others)
    _count_logs_without_a_value(stats, logs, tree, quarantine)
    stats.rewards_delivered += attribution.delivered
    if attribution.undeliverable:
        stats.rewards_undeliverable += attribution.undeliverable

    lost_values = _lost_values(quarantine, "span")
    bad = {(entry.trace_id, entry.span_id): entry.reason for entry in (*attribution.bad, *tree.cyclic)}
    traces_with_calls = {trace_id for (trace_id, _), role in group.roles.items() if role == "inference"}
    outcomes = zip(group.assignment.rollouts, group.outcomes, strict=True)
    waiting = {id(rollout) for rollout, outcome in outcomes if outcome == "waiting"}
    for key, count in tree.deliveries.items():
        quarantined = min(count, len(lost_values.get(key, ())))
        if quarantined:
            stats.quarantined[min(lost_values[key])] += quarantined
        deliveries = count - quarantined
        if deliveries > 1:
            _count_repeated(stats, deliveries - 1, tree.start_only.get(key, 0))
        if not deliveries:
            continue
        if key in bad:
            stats.quarantined[bad[key]] += 1
        elif id(group.assignment.of[key]) in waiting:
            stats.waiting += 1
        elif (reason := _ignored_because(key, group, traces_with_calls)) is None:
            stats.used += 1
        else:
            span = tree.spans[key]
            stats.ignored[reason] += 1
            if reason == NO_CALL:
                stats.spans_without_calls[span.scope.name] += 1
                stats.spans_naming_models[span.scope.name] += names_model(span)
            if reason == OUTSIDE and span.parent_span_id is None:
                stats.outside_roots[span.name] += 1
    extend_sorted(stats.quarantine, (*tree.cyclic, *attribution.bad))

    for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True):
        if outcome != "new":
            continue
        stats.trajectories += 1
        stats.complete += trajectory.complete
        for reason in trajectory.incomplete_reasons:
            stats.incomplete[reason] += 1
        completed = [call for call in trajectory.calls if not call.failed]
        stats.calls_completed += len(completed)
        stats.calls_failed += len(trajectory.calls) - len(completed)
        for call in completed:
            if is_without_content(call):
                stats.calls_without_content[tree.spans[call.trace_id, call.span_id].scope.name] += 1


def count_idle_spans(stats: AssemblyStats, spans: Sequence[Span]) -> None:
    """Count spans of traces without a call, a rollout or a reward. Building trees of these would cost most time."""
    unique = deduplicate(spans)
    _count_repeated(stats, len(spans) - len(unique.deliveries), sum(unique.start_only.values()))
    cyclic = take_out_cycles(unique.spans, find_parents(unique.spans)[0])
    if unique.spans:
        stats.ignored[NO_CALL] += len(unique.spans)
    stats.spans_without_calls.update(map(attrgetter("scope.name"), unique.spans.values()))
    stats.spans_naming_models.update(span.scope.name for span in unique.spans.values() if names_model(span))
    for entry in cyclic:
        stats.quarantined[entry.reason] += 1
    extend_sorted(stats.quarantine, cyclic)


def _count_logs_without_a_value(
    stats: AssemblyStats, logs: Iterable[LogRecord], tree: SpanTree, quarantine: Iterable[Quarantined]
) -> None:
    """Move log records that lost a value from the other counts to the quarantined ones.

    An entry of the quarantine names only the span of its record, so as many records of the span are moved as it has
    entries.
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


def _lost_values(quarantine: Iterable[Quarantined], kind: Kind) -> dict[tuple[str | None, str | None], list[str]]:
    """Why values of kept records were quarantined: reasons by the key of the records' span."""
    reasons: dict[tuple[str | None, str | None], list[str]] = {}
    for entry in quarantine:
        if entry.partial and entry.kind == kind:
            reasons.setdefault((entry.trace_id, entry.span_id), []).append(entry.reason)
    return reasons


def _count_repeated(stats: AssemblyStats, repeated: int, start_only: int) -> None:
    """Count repeated deliveries of a span: up to `start_only` as starts of spans, the rest as duplicates."""
    starts = min(repeated, start_only)
    if starts:
        stats.ignored[STARTED] += starts
    stats.duplicate += repeated - starts


def _ignored_because(key: SpanKey, group: AssembledGroup, traces_with_calls: Collection[str]) -> str | None:
    """Why a span is ignored; None if it is used."""
    role = group.roles[key]
    if role == "embeddings":
        return EMBEDDINGS
    if role == "retrieval":
        return RETRIEVAL
    if group.assignment.of[key] is not None or key in group.attribution.senders:
        return None
    if role == "uncaptured":
        return UNCAPTURED
    if key in group.assignment.unassigned:
        return UNASSIGNED
    return OUTSIDE if key[0] in traces_with_calls else NO_CALL


def is_without_content(call: Call) -> bool:
    """Whether a call has neither prompt nor answer, because content capture was off and not because they were lost."""
    is_unknown = call.prompt_node is None and call.choices is None
    return is_unknown and all(gap.kind == "off" for gap in call.gaps)
