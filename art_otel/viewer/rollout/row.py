"""Row: a rollout in one line, as the list, a group and its own page show it.

Invariant: what is not judged yet is null, not 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from art_otel.viewer.keys import GroupKey, TrajectoryKey, encode_key
from art_otel.viewer.options import PlanOptions
from art_otel.viewer.snapshot import Judgement, Snapshot


def show_rows(
    snapshot: Snapshot, rows: Sequence[int] | NDArray[np.int64], options: PlanOptions | None = None
) -> list[dict[str, Any]]:
    """The rows as the page shows them, judged under these options, or the default ones."""
    outlines = snapshot.outlines
    judgement = snapshot.judging.done() if options is None else snapshot.judging.wait(options)
    return [
        _row(record, outlines.reasons.row(number), outlines.models.row(number))
        | {"calls": int(outlines.calls[number]), "turns": int(outlines.turns[number])}
        | _judged(judgement, number)
        for number, record in zip(map(int, rows), outlines.records(rows), strict=True)
    ]


def _row(record: dict[str, Any], reasons: list[str], models: list[str]) -> dict[str, Any]:
    group_id, version = record["group_id"], record["policy_version"]
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
        "groupKey": None if group_id is None else encode_key(GroupKey.of(record)),
        "split": record["shown_split"],
        "step": record["shown_training_step"],
        "policyVersion": version and version["last"],
        "startedAt": None if started is None else str(started),
        "durationMs": None if started is None or ended is None else (ended - started) / 1e6,
        "models": models,
        "unfinished": record["status"] == "unfinished",
    }


def _judged(judgement: Judgement | None, number: int) -> dict[str, Any]:
    if judgement is None:
        return {"judged": False, "verdict": None, "sampledTokens": None, "trainedTokens": None}
    return {
        "judged": True,
        "verdict": judgement.verdicts[number],
        "sampledTokens": int(judgement.sampled[number]),
        "trainedTokens": int(judgement.trained[number]),
    }
