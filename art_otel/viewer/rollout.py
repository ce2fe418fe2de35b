"""Rollout: one trajectory as JSON values: a row of a list, its story with all but its tokens, and its spans.

Invariant: what is not judged yet is null, not 0.
"""

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.trajectories import Reward, Trajectory, trajectory_json
from art_otel.trajectories.json_views import call_json
from art_otel.viewer.addresses import NotFoundError, TrajectoryKey, encode_key, group_key_of
from art_otel.viewer.comparison import Comparison, compare, show_formula
from art_otel.viewer.judging import FLAT, Judgement, PlanOptions
from art_otel.viewer.labels import Labeled
from art_otel.viewer.snapshot import Snapshot
from art_otel.viewer.story import begin_of, tell_story
from art_otel.viewer.tokens import Tokenizer
from art_otel.viewer.tree import show_turns

_MS: Final = 1e6


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
    snapshot: Snapshot, row: int, options: PlanOptions, tokenizer: Tokenizer | None, recorded: RecordedSpans | None
) -> dict[str, Any]:
    """All of a rollout but its row, judged under these options. Raises ReplacedError and StoreError."""
    (trajectory,) = snapshot.read([row])
    comparison = compare(snapshot, row, options, trajectory)
    verdict = comparison.verdict
    code = snapshot.outlines.errors.codes[row]
    verdicts = verdict.completions or (verdict.skipped,) * len(trajectory.turns)
    return {
        **_compared_with(comparison, options),
        "sameError": int((snapshot.outlines.errors.codes == code).sum()) - 1 if code >= 0 else 0,
        "error": trajectory.error,
        "parentRolloutId": trajectory.parent_rollout_id,
        "rewards": [show_reward(trajectory, reward) for reward in trajectory.rewards],
        "metrics": dict(trajectory.metrics),
        "metadata": msgspec.to_builtins(trajectory.metadata),
        "logs": list(trajectory.logs),
        "tools": msgspec.to_builtins(trajectory.tools),
        "turns": show_turns(trajectory, verdicts, tokenizer),
        **tell_story(trajectory),
        "spans": [] if recorded is None else nested_spans(recorded.of(trajectory), trajectory),
    }


def _compared_with(comparison: Comparison, options: PlanOptions) -> dict[str, float | str | None]:
    """The advantage under the options, and how it came about; None where there is no single one."""
    advantages = {one.advantage for one in comparison.turn_rewards if one.reward is not None}
    is_one = len(advantages) == 1 and comparison.verdict.skipped is None and len(comparison.members) > 1
    advantage, reward = advantages.pop() if is_one else None, comparison.trajectory.reward
    if advantage is None or reward is None or options.unit != "rollout" or options.compares_groups:
        return {"advantage": advantage, "formula": None}
    rewards = [each for each in comparison.rewards if each is not None]
    return {"advantage": advantage, "formula": show_formula(options.advantage, reward, rewards, advantage)}


def raw_rollout(snapshot: Snapshot, row: int, part: str | None = None) -> dict[str, Any]:
    """The trajectory as JSON; of `part` that call alone, by its number, or `facts`: all but calls and turns.

    Raises NotFoundError for a call that there is not.
    """
    (trajectory,) = snapshot.read([row])
    if part is None:
        return {"trajectory": trajectory_json(trajectory)}
    if part == "facts":
        return {"trajectory": trajectory_json(replace(trajectory, calls=()))}
    if not part.isdecimal() or len(part) > 9 or int(part) >= len(trajectory.calls):
        raise NotFoundError(f"the rollout has {len(trajectory.calls)} calls; there is no call {part:.20}")
    return {"trajectory": call_json(trajectory.calls[int(part)])}


def show_rows(
    snapshot: Snapshot, rows: Sequence[int] | NDArray[np.int64], options: PlanOptions | None = None
) -> list[dict[str, Any]]:
    """The rows as the page shows them, judged under these options, or the default ones."""
    outlines, labels, running = snapshot.outlines, snapshot.labels.all(), snapshot.running
    judgement = snapshot.judging.done() if options is None else snapshot.judging.wait(options)
    kinds = None if judgement is None else judgement.flat_kinds(outlines)
    return [
        _row(record, outlines.reasons.row(number), outlines.models.row(number))
        | {
            "task": outlines.tasks.names[outlines.tasks.codes[number]] if outlines.tasks.codes[number] >= 0 else None,
            "cut": bool(outlines.cut[number]),
            "failure": outlines.errors.names[outlines.errors.codes[number]]
            if outlines.errors.codes[number] >= 0
            else None,
            "running": bool(running[number]),
            "source": snapshot.sources[int(record["source"])].name,
            "agents": outlines.agents.row(number),
            "calls": int(outlines.calls[number]),
            "turns": int(outlines.turns[number]),
            **_labeled(labels.get((int(record["source"]), record["rollout_id"], record["attempt"]))),
        }
        | _judged(judgement, number)
        | {"flat": None if kinds is None or kinds[number] < 0 else [*FLAT][kinds[number]]}
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
    }


def _labeled(given: Labeled | None) -> dict[str, Any]:
    if given is None:
        return {"labels": [], "note": "", "correctedReward": None}
    return {"labels": list(given.labels), "note": given.note, "correctedReward": given.reward}


def _judged(judgement: Judgement | None, number: int) -> dict[str, Any]:
    if judgement is None:
        unknown = dict.fromkeys(("verdict", "sampledTokens", "trainedTokens", "flatTokens", "advantage"))
        return {"judged": False, "completions": [], **unknown}
    return {
        "judged": True,
        "flatTokens": int(judgement.flat[number]),
        "advantage": float(judgement.advantage[number]),
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


def nested_spans(spans: Sequence[Span], trajectory: Trajectory) -> list[dict[str, Any]]:
    """The spans of dumps, each below the span that began it, the earlier first."""
    begin = begin_of(trajectory)
    calls = {call.span_id: position for position, call in enumerate(trajectory.calls)}
    known = {span.span_id for span in spans}
    inside: dict[str | None, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_ns, reverse=True):
        inside[span.parent_span_id if span.parent_span_id in known else None].append(span)
    shown: list[dict[str, Any]] = []
    to_show = [(0, span) for span in inside[None]]
    while to_show:
        depth, span = to_show.pop()
        end = None if span.end_ns is None else (span.end_ns - begin) / _MS
        call = calls.get(span.span_id)
        shown.append(
            {"name": span.name, "depth": depth, "call": call, "startMs": (span.start_ns - begin) / _MS, "endMs": end}
        )
        to_show += [(depth + 1, below) for below in inside.pop(span.span_id, ())]
    return shown
