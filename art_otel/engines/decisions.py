"""Decisions: which trajectories a round gives, which wait, and which rows no longer count.

Invariant: after a round the rows of a group that count are those of its trajectories that were given, each as it was
when it had ended or was quiet last. A trajectory has ended by the rule of `live`. What belongs to a rollout that is
closed is counted as too late, and no row is made of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from art_otel.calls import Logprobs, TokenIds
from art_otel.engines.plan import RecordGroup, Round
from art_otel.engines.shuffle import GivenRow, Outcome, OutcomeState, State, hash_of
from art_otel.live.arriving_spans import BelongsTo, belongs_to
from art_otel.live.span_index import SpanTally
from art_otel.spans import Quarantined, Span, extend_sorted
from art_otel.trajectories import AssemblyStats, SpanGroup, Trajectory, Verdict, build_trajectories, distinct
from art_otel.trajectories.reward_addresses import TOO_LATE
from art_otel.trajectories.span_context import is_marked_root

LATE: Final = "too late"
_ADVICE: Final = (
    "belongs to a rollout of which nothing came for --retain; convert everything anew, or retain longer next time"
)


class _TraceHistory(msgspec.Struct, kw_only=True):
    """What came of a trace, and what was made of it.

    `changed` is when a file with records of it was written to last. `spans` and `logs` came in this round.
    """

    changed: int = 0
    is_touched: bool = False
    spans: int = 0
    logs: int = 0
    outcome: Outcome | None = None

    def is_closed(self, round_: Round) -> bool:
        """Whether its rows stay as they are, as its records may be gone."""
        one = self.outcome
        return one is not None and one.state != "nothing" and one.is_over(round_.horizon)

    @property
    def is_open(self) -> bool:
        """Whether more of it is expected."""
        return self.outcome is not None and self.outcome.state == "open"

    def is_quiet(self, round_: Round) -> bool:
        """Whether nothing came of it for the grace."""
        return self.changed + round_.grace <= round_.now


def _histories(states: Iterable[State], number: int) -> dict[str, _TraceHistory]:
    """The histories of traces by their ids; `number` is that of the round."""
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


def _is_due(traces: Mapping[str, _TraceHistory], round_: Round) -> bool:
    """Whether a round assembles a group: something of it came, or it waited long enough."""
    return any(one.is_touched or (one.is_open and one.is_quiet(round_)) for one in traces.values())


class _Judged(NamedTuple):
    """A trajectory of a group, its verdict and the row that it has; `row` is what it would get, in no part yet."""

    trajectory: Trajectory
    verdict: Verdict
    earlier: GivenRow | None
    row: GivenRow


class Decisions:
    """The decisions of one assemble task.

    `open_since` says, for each slot, since when the trace waits that has waited longest there; `superseded` are rows
    that no longer count.
    """

    def __init__(self, round_: Round, slots: int, *, with_traces: bool) -> None:
        self._round = round_
        self._slots = slots
        self._with_traces = with_traces
        self._outcomes: list[Outcome] = []
        self._new: dict[int, GivenRow] = {}  # by the id of the trajectory
        self._placed: list[GivenRow] = []
        self.superseded: list[GivenRow] = []
        self.open_since: dict[int, int] = {}

    def is_wanted(self, states: Sequence[State]) -> bool:
        """Whether a group is assembled in this round."""
        traces = _histories(states, self._round.number)
        if _is_due(traces, self._round):
            return True
        self._note_open(traces, [one.changed for one in traces.values() if one.is_open])
        return False

    def trajectories(self, group: RecordGroup, rollout_spans: Sequence[str], stats: AssemblyStats) -> list[Trajectory]:
        """The trajectories of a group that get a row."""
        traces = _histories(group.states, self._round.number)
        records = group.records
        closed = {trace_id for trace_id, one in traces.items() if one.is_closed(self._round)}
        if closed:
            current = _without(records, closed)
            if not any(map(is_marked_root, current.spans)):  # all of it is of the closed rollout
                closed, current = set(traces), SpanGroup()
            _count_late(records, {trace_id: traces[trace_id] for trace_id in closed}, stats)
            self._outcomes += [self._outcome(trace_id, "closed") for trace_id in sorted(closed)]
            traces = {trace_id: one for trace_id, one in traces.items() if trace_id not in closed}
            group = RecordGroup(current, group.states, len(current.spans), len(current.logs))
            records = current
        stats.again += group.spans - sum(one.spans for one in traces.values())
        stats.logs_again += group.logs - sum(one.logs for one in traces.values())
        return self._decide(self._judged(records, traces, rollout_spans, stats), traces)

    def place(self, trajectory: Trajectory, number: int) -> None:
        """Take note of which row of the part the trajectory is."""
        row = self._new.pop(id(trajectory))
        row.row = number
        self._placed.append(row)

    def outcomes(self, part: str) -> list[Outcome]:
        """What was made of each trace, once every trajectory has its row in the part."""
        for row in self._placed:
            row.part = part
        return self._outcomes

    def _outcome(self, trace_id: str, state: OutcomeState, rows: Iterable[GivenRow] = ()) -> Outcome:
        return Outcome(trace_id, self._round.number, self._round.now, state, tuple(rows))

    def _judged(
        self,
        records: SpanGroup,
        traces: Mapping[str, _TraceHistory],
        rollout_spans: Sequence[str],
        stats: AssemblyStats,
    ) -> list[_Judged]:
        """Build the trajectories of a group, and say what becomes of each."""
        tallies = _tallies(records.spans)
        outcomes = (one.outcome for one in traces.values() if one.outcome is not None)
        earlier = {(outcome.trace_id, row.key): row for outcome in outcomes for row in outcome.rows}
        judged: list[_Judged] = []
        repeated = Counter[tuple[str, int, str]]()

        def verdict_of(trajectory: Trajectory) -> Verdict:
            rollout_id, attempt, trace_id = trajectory.order
            key = (rollout_id, attempt, repeated[trajectory.order])
            repeated[trajectory.order] += 1
            row, digest = earlier.get((trace_id, key)), self._digest(trajectory)
            verdict: Verdict = "waiting"
            if row is not None and row.digest == digest:
                verdict = "known"
            elif self._is_over(trajectory, tallies, traces):
                verdict = "new"
            revision = 0 if row is None else row.revision + 1
            judged.append(_Judged(trajectory, verdict, row, GivenRow(key, revision, digest)))
            return verdict

        build_trajectories(records, rollout_spans, stats, verdict_of)
        return judged

    def _decide(self, judged: Sequence[_Judged], traces: Mapping[str, _TraceHistory]) -> list[Trajectory]:
        """Note what becomes of the traces and their rows, and give the trajectories that get a row."""
        rows: dict[str, list[GivenRow]] = defaultdict(list)
        new: list[Trajectory] = []
        waiting: set[str] = set()
        changed: list[int] = []
        current = {id(one.earlier) for one in judged if one.verdict != "new"}
        outcomes = (one.outcome for one in traces.values() if one.outcome is not None)
        superseded = [row for outcome in outcomes for row in outcome.rows if id(row) not in current]
        revisions = {row.key: row.revision for row in superseded}
        for one in judged:
            row = one.earlier
            if one.verdict == "waiting":
                of_rollout = _traces_of(one.trajectory) & traces.keys()
                waiting |= of_rollout
                changed.append(max(traces[trace_id].changed for trace_id in of_rollout))
            elif one.verdict == "new":
                row = one.row
                if one.earlier is None and row.key in revisions:  # its root came, in another trace
                    row.revision = revisions[row.key] + 1
                new.append(replace(one.trajectory, revision=row.revision))
                self._new[id(new[-1])] = row
            if row is not None:
                rows[one.trajectory.trace_id].append(row)
        self.superseded += superseded
        for trace_id in traces:
            state = "open" if trace_id in waiting else "given" if rows else "nothing"
            self._outcomes.append(self._outcome(trace_id, state, rows.get(trace_id, ())))
        self._note_open(traces, changed)
        return new

    def _is_over(
        self, trajectory: Trajectory, tallies: Mapping[BelongsTo, SpanTally], traces: Mapping[str, _TraceHistory]
    ) -> bool:
        """Whether a rollout has ended, or nothing came of it for the grace."""
        tally = tallies.get(("rollout", trajectory.rollout_id)) or tallies.get(("trace", trajectory.trace_id))
        if tally is not None and tally.has_ended:
            return True
        return all(traces[trace_id].is_quiet(self._round) for trace_id in _traces_of(trajectory) & traces.keys())

    def _digest(self, trajectory: Trajectory) -> bytes:
        from art_otel.store.part_writer import flatten_row  # noqa: PLC0415 # loads pyarrow

        row, _ = flatten_row(trajectory, with_traces=self._with_traces)
        encoded = msgspec.msgpack.encode(row, enc_hook=_packed, order="deterministic")
        return blake2b(encoded, digest_size=12).digest()

    def _note_open(self, traces: Mapping[str, _TraceHistory], changed: Sequence[int]) -> None:
        """Take note of when something last came of each rollout that waits."""
        if changed:
            slot = hash_of(min(traces)) % self._slots
            self.open_since[slot] = min(*changed, self.open_since.get(slot, changed[0]))


def _traces_of(trajectory: Trajectory) -> set[str]:
    return {trajectory.trace_id, *(call.trace_id for call in trajectory.calls)}


def _tallies(spans: Iterable[Span]) -> Mapping[BelongsTo, SpanTally]:
    tallies: dict[BelongsTo, SpanTally] = defaultdict(SpanTally)
    for span in spans:
        for to in belongs_to(span):
            tallies[to].add_span(span)
    return dict(tallies)


def _without(records: SpanGroup, closed: set[str]) -> SpanGroup:
    """The records of a group but for those of closed traces."""
    return SpanGroup(
        spans=[span for span in records.spans if span.trace_id not in closed],
        logs=[log for log in records.logs if log.trace_id not in closed],
        quarantine=[entry for entry in records.quarantine if entry.trace_id not in closed],
        external_rewards=[reward for reward in records.external_rewards or () if reward.trace_id not in closed],
    )


def _count_late(records: SpanGroup, traces: Mapping[str, _TraceHistory], stats: AssemblyStats) -> None:
    """Count what came of a closed rollout, and name its traces."""
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
