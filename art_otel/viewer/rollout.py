"""Rollout: one trajectory as JSON values: a row of a list, all of it but its tokens, and what ran when.

Invariant: what is not judged yet is null, not 0. Milliseconds count from the first start that is known.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.trajectories import Reward, Trajectory, trajectory_json
from art_otel.trajectories.history import histories, main_history, token_histories
from art_otel.viewer.addresses import TrajectoryKey, encode_key, group_key_of
from art_otel.viewer.comparison import compare, members_of
from art_otel.viewer.conversation import conversations
from art_otel.viewer.judging import DEFAULTS, Judgement, PlanOptions
from art_otel.viewer.labels import Labeled
from art_otel.viewer.snapshot import Snapshot
from art_otel.viewer.tokens import Tokenizer
from art_otel.viewer.tree import show_turns

_MS = 1e6


class RecordedSpans:
    """The spans of dumps by their traces, without attributes; they are read when they are first asked for."""

    def __init__(self, dumps: Sequence[str]) -> None:
        self._inputs = list(find_inputs(list(dumps)))
        self._by_trace: dict[str, list[Span]] | None = None
        self._lock = threading.Lock()

    def of(self, trajectory: Trajectory) -> list[Span]:
        """The spans of the trajectory's traces. Raises SourceError."""
        with self._lock:
            if self._by_trace is None:
                self._by_trace = self._read()
            traces = {trajectory.trace_id, *(call.trace_id for call in trajectory.calls)}
            return [span for trace_id in sorted(traces) for span in self._by_trace.get(trace_id, [])]

    def _read(self) -> dict[str, list[Span]]:
        spans: dict[tuple[str, str], Span] = {}
        for each in self._inputs:
            for record in read_file(each, FileStats()):
                if isinstance(record, Span):
                    spans[record.key] = Span(
                        trace_id=record.trace_id,
                        span_id=record.span_id,
                        parent_span_id=record.parent_span_id,
                        name=record.name,
                        start_ns=record.start_ns,
                        end_ns=record.end_ns,
                    )
        by_trace: dict[str, list[Span]] = {}
        for span in spans.values():
            by_trace.setdefault(span.trace_id, []).append(span)
        return by_trace


def show_rollout(
    snapshot: Snapshot, key: TrajectoryKey, tokenizer: Tokenizer | None, recorded: RecordedSpans | None
) -> dict[str, Any]:
    """The rollout of this key. Raises NotFoundError, ReplacedError and StoreError."""
    row = snapshot.row_of(key)
    (trajectory,) = snapshot.read([row])
    spans: list[Span] = [] if recorded is None else recorded.of(trajectory)
    time, total = timeline(trajectory, spans)
    verdict = compare(snapshot, row, DEFAULTS, trajectory).verdict
    verdicts = verdict.completions or (verdict.skipped,) * len(trajectory.turns)
    (shown,) = show_rows(snapshot, [row])
    return {
        "row": shown,
        **_neighbors(snapshot, row),
        "error": trajectory.error,
        "parentRolloutId": trajectory.parent_rollout_id,
        "rewards": [show_reward(trajectory, reward) for reward in trajectory.rewards],
        "metrics": dict(trajectory.metrics),
        "metadata": msgspec.to_builtins(trajectory.metadata),
        "logs": list(trajectory.logs),
        "tools": msgspec.to_builtins(trajectory.tools),
        "histories": conversations(trajectory, verdicts),
        "main": _main_histories(trajectory),
        "turns": show_turns(trajectory, verdicts, tokenizer),
        "time": time,
        "totalMs": total,
    }


def _main_histories(trajectory: Trajectory) -> dict[str, int]:
    """Which history a tab opens: the one with most turns, and not that of a sub-agent or a choice that ended early.

    A judge's turn may go on with the main history: then it is the first history with all turns of it.
    """
    turns, main = trajectory.turns, main_history(trajectory)
    through = [history.turns for history in histories(trajectory)]
    paths = [history.turns for history in token_histories(trajectory)]
    longest = max(paths, key=lambda path: (len(path), turns[path[-1]].call, -turns[path[-1]].choice), default=None)
    return {
        "conversation": next((at for at, path in enumerate(through) if main is not None and main.turns[-1] in path), 0),
        "tokens": 0 if longest is None else paths.index(longest),
    }


def raw_rollout(snapshot: Snapshot, key: TrajectoryKey) -> dict[str, Any]:
    """The trajectory as JSON."""
    (trajectory,) = snapshot.read([snapshot.row_of(key)])
    return {"trajectory": trajectory_json(trajectory)}


def show_rows(
    snapshot: Snapshot, rows: Sequence[int] | NDArray[np.int64], options: PlanOptions | None = None
) -> list[dict[str, Any]]:
    """The rows as the page shows them, judged under these options, or the default ones."""
    outlines, labels = snapshot.outlines, snapshot.labels.all()
    judgement = snapshot.judging.done() if options is None else snapshot.judging.wait(options)
    return [
        _row(record, outlines.reasons.row(number), outlines.models.row(number))
        | {
            "source": snapshot.sources[int(record["source"])].name,
            "agents": outlines.agents.row(number),
            "calls": int(outlines.calls[number]),
            "turns": int(outlines.turns[number]),
            **_labeled(labels.get((int(record["source"]), record["rollout_id"], record["attempt"]))),
        }
        | _judged(judgement, number)
        for number, record in zip(map(int, rows), outlines.records(rows), strict=True)
    ]


def _row(record: dict[str, Any], reasons: list[str], models: list[str]) -> dict[str, Any]:
    group_id = record["group_id"]
    started, ended = record["started_at"], record["ended_at"]
    return {
        "key": encode_key(TrajectoryKey.of(record)),
        "rolloutId": record["rollout_id"],
        "attempt": record["attempt"],
        "name": record["name"],
        "status": record["status"],
        "reward": record["reward"],
        "complete": record["complete"],
        "reasons": reasons,
        "groupId": group_id,
        "groupKey": None if group_id is None else encode_key(group_key_of(record)),
        "split": record["shown_split"],
        "step": record["shown_training_step"],
        "policyVersion": record["shown_policy_version"],
        "startedAt": None if started is None else str(started),
        "durationMs": None if started is None or ended is None else (ended - started) / 1e6,
        "models": models,
        "unfinished": record["status"] == "unfinished",
    }


def _labeled(given: Labeled | None) -> dict[str, Any]:
    if given is None:
        return {"labels": [], "note": "", "correctedReward": None}
    return {"labels": list(given.labels), "note": given.note, "correctedReward": given.reward}


def _judged(judgement: Judgement | None, number: int) -> dict[str, Any]:
    if judgement is None:
        return {"judged": False, "verdict": None, "completions": [], "sampledTokens": None, "trainedTokens": None}
    return {
        "judged": True,
        "verdict": judgement.verdicts[number],
        "completions": judgement.completions.row(number),
        "sampledTokens": int(judgement.sampled[number]) if judgement.counted[number] else None,
        "trainedTokens": int(judgement.trained[number]),
    }


def show_reward(trajectory: Trajectory, reward: Reward) -> dict[str, Any]:
    """A reward, and exactly what it judges."""
    target = {"kind": "rollout", "step": reward.step, "turn": None, "choice": reward.choice, "start": None, "end": None}
    call = next((at for at, one in enumerate(trajectory.calls) if one.span_id == reward.target), None)
    if reward.target_kind is not None:
        target["kind"] = reward.target_kind
    elif call is not None:
        choice = reward.choice or 0
        turns = [at for at, one in enumerate(trajectory.turns) if one.call == call and one.choice == choice]
        target |= {"kind": "call", "turn": turns[0] if turns else None}
        if reward.token_start is not None:
            target |= {"kind": "tokens", "start": reward.token_start, "end": reward.token_end}
    elif reward.step is not None:
        target["kind"] = "step"
    return {
        "name": reward.name,
        "value": reward.value,
        "label": reward.label,
        "explanation": reward.explanation,
        "target": target,
        "source": reward.source,
    }


def _neighbors(snapshot: Snapshot, row: int) -> dict[str, str | None]:
    """The trajectories before and after it, in the list and in its group."""
    newest, members = snapshot.outlines.newest, members_of(snapshot, row)
    place, position = int(np.flatnonzero(newest == row)[0]), members.index(row)
    return {
        "previous": _key(snapshot, newest[place - 1]) if place else None,
        "next": _key(snapshot, newest[place + 1]) if place + 1 < len(newest) else None,
        "groupPrevious": _key(snapshot, members[position - 1]) if position else None,
        "groupNext": _key(snapshot, members[position + 1]) if position + 1 < len(members) else None,
    }


def _key(snapshot: Snapshot, row: int | np.int64) -> str:
    (record,) = snapshot.outlines.records([int(row)])
    return encode_key(TrajectoryKey.of(record))


def timeline(trajectory: Trajectory, spans: Sequence[Span] = ()) -> tuple[list[dict[str, Any]], float | None]:
    """The entries by their start, and how long all took. Milliseconds count from the first start."""
    starts = [one.start_ns for one in (*trajectory.calls, *trajectory.tool_calls, *spans)]
    if trajectory.started_at is not None:
        starts.append(trajectory.started_at)
    begin = min(starts, default=None)
    if begin is None:
        return [], None
    entries = sorted(
        [
            *_calls(trajectory),
            *_tools(trajectory),
            *_steps(trajectory),
            *_rewards(trajectory),
            *_spans(spans, trajectory),
        ],
        key=lambda entry: (entry["startMs"], entry["depth"]),
    )
    for entry in entries:
        entry["startMs"] = (entry["startMs"] - begin) / _MS
        entry["endMs"] = None if entry["endMs"] is None else (entry["endMs"] - begin) / _MS
    ends: list[float] = [entry["startMs"] if entry["endMs"] is None else entry["endMs"] for entry in entries]
    if trajectory.ended_at is not None:
        ends.append((trajectory.ended_at - begin) / _MS)
    return entries, max(ends, default=None)


def _entry(  # an entry has these
    kind: str,
    name: str | None,
    start: int,
    end: int | None,
    *,
    turn: int | None = None,
    error: str | None = None,
    agent: str | None = None,
    depth: int = 1,
) -> dict[str, Any]:
    entry = {"kind": kind, "name": name, "startMs": start, "endMs": end, "turn": turn, "error": error, "depth": depth}
    return entry | {"agent": agent}


def _calls(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    first_turn = {turn.call: position for position, turn in reversed(list(enumerate(trajectory.turns)))}
    for position, call in enumerate(trajectory.calls):
        name = call.response_model or call.request_model or call.operation_name
        error = call.error or call.error_type
        turn = first_turn.get(position)
        yield _entry("call", name, call.start_ns, call.end_ns, turn=turn, error=error, agent=call.agent)


def _tools(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for tool in trajectory.tool_calls:
        yield _entry("tool", tool.name, tool.start_ns, tool.end_ns, turn=tool.turn, error=tool.error)


def _steps(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """A step lasts from the first start to the last end of its calls, because the data says no more of it."""
    for step in sorted({call.step for call in trajectory.calls if call.step is not None}):
        calls = [call for call in trajectory.calls if call.step == step]
        ends = [call.end_ns for call in calls if call.end_ns is not None]
        yield _entry("step", f"step {step}", min(call.start_ns for call in calls), max(ends, default=None), depth=0)


def _rewards(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for reward in trajectory.rewards:
        shown = reward.label if reward.value is None else f"{reward.value:g}"
        yield _entry("reward", f"{reward.name} {shown}", reward.time_ns, None, depth=0)


def _spans(spans: Sequence[Span], trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The spans that are neither calls nor tools, with their depth in the trace."""
    shown = {call.span_id for call in trajectory.calls} | {tool.span_id for tool in trajectory.tool_calls}
    parents = {span.span_id: span.parent_span_id for span in spans}
    for span in spans:
        if span.span_id not in shown:
            depth, above = 0, parents.get(span.span_id)
            while above in parents and depth < len(parents):
                depth, above = depth + 1, parents[above]
            yield _entry("span", span.name, span.start_ns, span.end_ns, depth=depth)
