"""Rollout: everything about one trajectory but its tokens."""

from typing import TYPE_CHECKING, Any

import msgspec

from art_otel.trajectories import Reward, Trajectory, trajectory_json
from art_otel.viewer.keys import TrajectoryKey, encode_key
from art_otel.viewer.options import DEFAULTS
from art_otel.viewer.rollout.comparison import compare, members_of
from art_otel.viewer.rollout.conversation import conversations
from art_otel.viewer.rollout.recorded_spans import RecordedSpans
from art_otel.viewer.rollout.row import show_rows
from art_otel.viewer.rollout.timeline import timeline
from art_otel.viewer.rollout.tokenizer import Tokenizer
from art_otel.viewer.rollout.tree import show_turns
from art_otel.viewer.snapshot import Snapshot

if TYPE_CHECKING:
    from art_otel.spans import Span


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
        "histories": conversations(trajectory),
        "turns": show_turns(trajectory, verdicts, tokenizer),
        "time": time,
        "totalMs": total,
    }


def raw_rollout(snapshot: Snapshot, key: TrajectoryKey) -> dict[str, Any]:
    """The trajectory as JSON."""
    (trajectory,) = snapshot.read([snapshot.row_of(key)])
    return {"trajectory": trajectory_json(trajectory)}


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
    """The trajectories before and after it, in the data and in its group."""
    outlines, members = snapshot.outlines, members_of(snapshot, row)
    position = members.index(row)
    return {
        "previous": _key(snapshot, row - 1) if row else None,
        "next": _key(snapshot, row + 1) if row + 1 < len(outlines) else None,
        "groupPrevious": _key(snapshot, members[position - 1]) if position else None,
        "groupNext": _key(snapshot, members[position + 1]) if position + 1 < len(members) else None,
    }


def _key(snapshot: Snapshot, row: int) -> str:
    (record,) = snapshot.outlines.records([row])
    return encode_key(TrajectoryKey.of(record))
