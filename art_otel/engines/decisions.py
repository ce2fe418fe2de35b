"""Decisions: which trajectories an incremental round writes, which wait, and which rows it replaces.

    round 1   spans of r1, not ended yet          waits: no row
    round 2   the rest of r1, with its end        new: a row with revision 0
    round 3   a late span of r1                   new: a row with revision 1; the row of revision 0 is superseded
    later     nothing came for --retain           closed: a span that comes now is counted as too late

Invariant: after each round, a group has exactly one valid row for each trajectory that was written: its state when it
had ended (`live/endings.py`), or when nothing had come for the grace. Closed rollouts get no new row.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Logprobs, TokenIds
from art_otel.engines.assemble import RecordGroup
from art_otel.engines.run import Round
from art_otel.engines.shuffle import GivenRow, Outcome, OutcomeState, Shuffled, ShuffleWriter, State, hash_of
from art_otel.live.arriving_rollouts import BelongsTo, belongs_to
from art_otel.live.endings import SpanTally, is_quiet
from art_otel.spans import Quarantined, Span, extend_sorted
from art_otel.store import RowKey
from art_otel.trajectories import AssemblyStats, IncrementalOutcome, SpanGroup, Trajectory, build_trajectories, distinct
from art_otel.trajectories.rewards import TOO_LATE
from art_otel.trajectories.rollouts import is_marked_root

Order: TypeAlias = tuple[str, int, str]
"""A `Trajectory.order`: rollout id, attempt, trace id."""

LATE: Final = "too late"
_ADVICE: Final = (
    "belongs to a rollout that had no new span for --retain, or was converted without --incremental; convert "
    "everything again"
)


class _TraceHistory(msgspec.Struct, kw_only=True):
    """The arrivals of a trace's records, and the last outcome of the trace.

    `changed` is the last write to a file with its records, in nanoseconds. `spans` and `logs` count this round's ones.
    """

    changed: int = 0
    is_touched: bool = False
    spans: int = 0
    logs: int = 0
    outcome: Outcome | None = None

    def is_closed(self, round_: Round) -> bool:
        """Whether the trace's rows stay as they are: its records may have been removed from the kept files."""
        one = self.outcome
        return one is not None and one.state != "nothing" and one.is_over(round_.horizon)

    @property
    def is_open(self) -> bool:
        """Whether more spans of the trace are expected."""
        return self.outcome is not None and self.outcome.state == "open"

    def is_quiet(self, round_: Round) -> bool:
        """Whether no record of the trace came for the grace."""
        return is_quiet(self.changed, round_.now, round_.grace)


def _histories(states: Iterable[State], number: int) -> dict[str, _TraceHistory]:
    """The histories of traces by trace id. `number` is the round's."""
    traces: dict[str, _TraceHistory] = {}
    for state in states:
        history = traces.setdefault(state.trace_id, _TraceHistory())
        if isinstance(state, Outcome):
            if history.outcome is None or history.outcome.round < state.round:
                history.outcome = state
            continue
        history.changed = max(history.changed, state.changed)
        if state.round == number:
            history.is_touched = True
            history.spans += state.spans
            history.logs += state.logs
    return traces


class _DecidedRollout(NamedTuple):
    """The decision on the trajectories of a group with one order, and a digest of their content.

    `changed` is when a record of their `traces` last came, in nanoseconds.
    """

    outcome: IncrementalOutcome
    digest: bytes
    traces: Collection[str]
    changed: int


class Decisions:
    """The decisions of one assemble task, whose rows go into part number `part`.

    `open_since` has for each slot the time of its longest waiting trace, in nanoseconds; `superseded` are the keys of
    rows that are no longer valid.
    """

    def __init__(
        self, round_: Round, slots: int, part: int, *, with_traces: bool, rollout_attributes: Sequence[str] = ()
    ) -> None:
        self._round = round_
        self._part = part
        self._slots = slots
        self._with_traces = with_traces
        self._rollout_attributes = rollout_attributes
        self._outcomes: list[Outcome] = []
        self.superseded: list[RowKey] = []
        self.open_since: dict[int, int] = {}

    def is_wanted(self, states: Sequence[State]) -> bool:
        """Whether a group must be assembled in this round: records of it came, or it has waited long enough."""
        traces = _histories(states, self._round.number)
        if any(one.is_touched or (one.is_open and one.is_quiet(self._round)) for one in traces.values()):
            return True
        self._note_open(traces, [one.changed for one in traces.values() if one.is_open])
        return False

    def trajectories(self, group: RecordGroup, rollout_spans: Sequence[str], stats: AssemblyStats) -> list[Trajectory]:
        """Build the trajectories of a group, and return those that get a row in this round."""
        traces = _histories(group.states, self._round.number)
        group = self._without_closed(group, traces, stats)
        stats.again += group.spans - sum(one.spans for one in traces.values())
        stats.logs_again += group.logs - sum(one.logs for one in traces.values())
        tallies = _tallies(group.records.spans, self._rollout_attributes)
        earlier = {row.key[:3]: row for one in traces.values() if one.outcome for row in one.outcome.rows}
        judged: dict[Order, _DecidedRollout] = {}

        def outcomes_of(trajectories: Sequence[Trajectory]) -> list[IncrementalOutcome]:
            together: dict[Order, list[Trajectory]] = defaultdict(list)
            for trajectory in trajectories:
                together[trajectory.order].append(trajectory)
            for order, several in together.items():
                judged[order] = self._judge(several, earlier.get(order), tallies, traces)
            return [judged[one.order].outcome for one in trajectories]

        built = build_trajectories(
            group.records, rollout_spans, stats, outcomes_of, rollout_attributes=self._rollout_attributes
        ).trajectories
        revisions = self._decide(judged, earlier, traces)
        return [replace(one, revision=revisions[one.order]) for one in built if one.order in revisions]

    def write_outcomes(self, folder: str) -> Shuffled:
        """Write the outcome of each trace to a shuffle file, for later rounds."""
        writer = ShuffleWriter(folder, self._slots)
        for outcome in self._outcomes:
            writer.add(outcome)
        return writer.finish()

    def _without_closed(
        self, group: RecordGroup, traces: dict[str, _TraceHistory], stats: AssemblyStats
    ) -> RecordGroup:
        """Remove closed traces from a group and from `traces`; count their records of this round as too late."""
        closed = {trace_id for trace_id, one in traces.items() if one.is_closed(self._round)}
        if not closed:
            return group
        records = group.records
        current = _without(records, closed)
        if not any(map(is_marked_root, current.spans)):  # the rest is late records of the closed rollout in new traces
            closed, current = set(traces), SpanGroup()
        _count_late(records, {trace_id: traces.pop(trace_id) for trace_id in closed}, stats)
        self._outcomes += [self._outcome(trace_id, "closed") for trace_id in sorted(closed)]
        return RecordGroup(current, group.states, len(current.spans), len(current.logs))

    def _outcome(self, trace_id: str, state: OutcomeState, rows: Iterable[GivenRow] = ()) -> Outcome:
        return Outcome(trace_id, self._round.number, self._round.now, state, tuple(rows))

    def _judge(
        self,
        trajectories: Sequence[Trajectory],
        earlier: GivenRow | None,
        tallies: Mapping[BelongsTo, SpanTally],
        traces: Mapping[str, _TraceHistory],
    ) -> _DecidedRollout:
        """Decide on the trajectories with one order. Several ones are attempts that nothing tells apart."""
        first, digest = trajectories[0], self._digest(trajectories)
        own = {first.trace_id, *(call.trace_id for one in trajectories for call in one.calls)} & traces.keys()
        tally = tallies.get(("rollout", first.rollout_id)) or tallies.get(("trace", first.trace_id))
        outcome: IncrementalOutcome = "waiting"
        if earlier is not None and earlier.digest == digest:
            outcome = "known"
        elif (tally is not None and tally.has_ended) or all(traces[one].is_quiet(self._round) for one in own):
            outcome = "new"
        return _DecidedRollout(outcome, digest, own, max(traces[one].changed for one in own))

    def _decide(
        self,
        judged: Mapping[Order, _DecidedRollout],
        earlier: Mapping[Order, GivenRow],
        traces: Mapping[str, _TraceHistory],
    ) -> dict[Order, int]:
        """Note the outcomes of the traces and the superseded rows; return the revisions of the new rows."""
        superseded = [
            row.key for order, row in earlier.items() if order not in judged or judged[order].outcome == "new"
        ]
        self.superseded += superseded
        # By rollout and attempt only: a row without a root has another trace id when its root comes later.
        before: dict[tuple[str, int], int] = {}
        for key in superseded:
            before[key[:2]] = max(key.revision, before.get(key[:2], 0))
        revisions: dict[Order, int] = {}
        rows: dict[str, list[GivenRow]] = defaultdict(list)
        waiting = [one for one in judged.values() if one.outcome == "waiting"]
        for order, one in judged.items():
            row = earlier.get(order)
            if one.outcome == "new":
                revisions[order] = before.get(order[:2], -1) + 1
                row = GivenRow(RowKey(*order, revisions[order], self._part), one.digest)
            if row is not None:
                rows[order[2]].append(row)
        open_traces = {trace_id for one in waiting for trace_id in one.traces}
        for trace_id in traces:
            state = "open" if trace_id in open_traces else "given" if rows else "nothing"
            self._outcomes.append(self._outcome(trace_id, state, rows.get(trace_id, ())))
        self._note_open(traces, [one.changed for one in waiting])
        return revisions

    def _digest(self, trajectories: Sequence[Trajectory]) -> bytes:
        from art_otel.store.part_writer import flatten_row  # noqa: PLC0415 # loads pyarrow

        digest = blake2b(digest_size=12)
        for trajectory in trajectories:
            row = flatten_row(trajectory, with_traces=self._with_traces)
            digest.update(msgspec.msgpack.encode(row.values, enc_hook=_packed, order="deterministic"))
        return digest.digest()

    def _note_open(self, traces: Mapping[str, _TraceHistory], changed: Sequence[int]) -> None:
        """Note when a record of each waiting rollout last came, for its slot."""
        if changed:
            slot = hash_of(min(traces)) % self._slots
            self.open_since[slot] = min(*changed, self.open_since.get(slot, changed[0]))


def _tallies(spans: Iterable[Span], rollout_attributes: Sequence[str]) -> Mapping[BelongsTo, SpanTally]:
    tallies: dict[BelongsTo, SpanTally] = defaultdict(SpanTally)
    for span in spans:
        for to in belongs_to(span, rollout_attributes):
            tallies[to].add_span(span)
    return dict(tallies)


def _without(records: SpanGroup, closed: set[str]) -> SpanGroup:
    """The records of a group without those of closed traces."""
    return SpanGroup(
        spans=[span for span in records.spans if span.trace_id not in closed],
        logs=[log for log in records.logs if log.trace_id not in closed],
        quarantine=[entry for entry in records.quarantine if entry.trace_id not in closed],
        external_rewards=[reward for reward in records.external_rewards or () if reward.trace_id not in closed],
    )


def _count_late(records: SpanGroup, traces: Mapping[str, _TraceHistory], stats: AssemblyStats) -> None:
    """Count the records that came for closed traces, and list these traces in the quarantine."""
    for trace_id, one in traces.items():
        if one.spans or one.logs:
            detail = f"{one.spans} spans and {one.logs} log records: {_ADVICE}"
            entry = Quarantined(reason=LATE, path=f"trace {trace_id}", detail=detail, trace_id=trace_id)
            extend_sorted(stats.quarantine, (entry,))
            stats.quarantined[LATE] += one.spans
            stats.quarantined_logs[LATE] += one.logs
    if late := sum(reward.trace_id in traces for reward in distinct(records.external_rewards or ())):
        stats.rewards_undeliverable[TOO_LATE] += late


def _packed(value: object) -> Any:  # noqa: ANN401 # msgspec's own signature
    if isinstance(value, TokenIds | Logprobs):
        return value.data
    raise NotImplementedError(type(value))
