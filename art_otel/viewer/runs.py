"""Runs: training runs over their steps: their metrics, and the rollouts of one name side by side.

Invariant: metrics come from `history.jsonl` of our run log or ART's. Counts and mean rewards of a step are of all its
rollouts of the name, texts of its first ones alone. Rollouts without a step are in no task.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from art_otel.runlog.history import HistoryRow, means_by_step, read_rows
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory
from art_otel.viewer.addresses import NotFoundError, TrajectoryKey, encode_key
from art_otel.viewer.group import main_turns, show_cell
from art_otel.viewer.snapshot import Snapshot, ViewedSource

_AXES: Final = frozenset({"step", "training_step", "recorded_at"})
_MOST_TASKS: Final = 200

_MOST_STEPS: Final = 32
"""Steps that are shown: of more, these at equal distances, with the first and the last."""

_MOST_ANSWERS: Final = 4
_MESSAGES: Final = Wanted(tokens=False)


def list_runs(sources: Sequence[ViewedSource]) -> dict[str, Any]:
    """The runs and all metrics that any of them has."""
    metrics = {
        name
        for _, folder in _runs(sources)
        for row in read_rows(folder / "history.jsonl")
        for name, value in row.items()
        if name not in _AXES and _is_number(value)
    }
    return {
        "runs": [{"id": number, "name": sources[int(number)].name} for number, _ in _runs(sources)],
        "metrics": sorted(metrics),
    }


def run_series(sources: Sequence[ViewedSource], metric: str, wanted: Sequence[str]) -> dict[str, Any]:
    """The mean of a metric over the rows of each step, of these runs, or of all. Raises NotFoundError."""
    runs = dict(_runs(sources))
    if unknown := set(wanted) - runs.keys():
        raise NotFoundError(f"no run {min(unknown)!r:.100}")
    series: list[dict[str, Any]] = []
    for number in wanted or runs:
        means = means_by_step(list[HistoryRow](read_rows(runs[number] / "history.jsonl")), metric)
        steps = sorted(means)
        series.append({"run": number, "steps": steps, "values": [means[step] for step in steps]})
    return {"series": series}


def _runs(sources: Sequence[ViewedSource]) -> list[tuple[str, Path]]:
    return [(str(number), source.run) for number, source in enumerate(sources) if source.run is not None]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def list_tasks(snapshot: Snapshot, part: str) -> dict[str, Any]:
    """The names that hold this text, with their numbers of rollouts and steps; those of most steps first."""
    table = snapshot.outlines.table.select(["name", "shown_training_step"]).drop_null()
    if part:
        table = table.filter(pc.match_substring(table.column("name"), part, ignore_case=True))
    counts = table.group_by("name").aggregate([("shown_training_step", "count_distinct"), ([], "count_all")])
    tasks: list[dict[str, Any]] = [
        {"name": record["name"], "steps": record["shown_training_step_count_distinct"], "rollouts": record["count_all"]}
        for record in counts.to_pylist()
    ]
    tasks.sort(key=lambda task: (-task["steps"], task["name"]))
    return {"total": len(tasks), "tasks": tasks[:_MOST_TASKS]}


def show_task(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """The steps of the rollouts of this name, of each source by itself. Raises NotFoundError."""
    outlines = snapshot.outlines
    rows = np.flatnonzero(outlines.equal("name", name) & ~outlines.equal("shown_training_step", None))
    records = dict(zip(rows.tolist(), outlines.records(rows), strict=True))
    by_step: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, record in records.items():
        by_step[record["shown_training_step"], record["source"]].append(row)
    if not by_step:
        raise NotFoundError(f"no rollout {name!r:.200} of a known step in this data")
    steps = _spread(sorted({step for step, _ in by_step}))
    shown = {key: by_step[key] for key in sorted(by_step) if key[0] in steps}
    first = list(chain.from_iterable(members[:_MOST_ANSWERS] for members in shown.values()))
    answers = dict(zip(first, snapshot.read(first, _MESSAGES), strict=True))
    return {
        "name": name,
        "total": len({step for step, _ in by_step}),
        "steps": [
            {
                "step": step,
                "run": snapshot.sources[source].name,
                "rollouts": len(members),
                "reward": _mean([records[row]["reward"] for row in members]),
                "answers": [_answer(records[row], answers[row]) for row in members[:_MOST_ANSWERS]],
            }
            for (step, source), members in shown.items()
        ],
    }


def _spread(steps: Sequence[int]) -> set[int]:
    positions = np.linspace(0, len(steps) - 1, min(len(steps), _MOST_STEPS)).round().astype(int)
    return {steps[position] for position in positions}


def _mean(rewards: Sequence[float | None]) -> float | None:
    """The mean of the known rewards; None where there is none."""
    values = [reward for reward in rewards if reward is not None]
    return fmean(values) if values else None


def _answer(record: dict[str, Any], trajectory: Trajectory) -> dict[str, Any]:
    """A rollout's reward and the first answer of its main history; None where it has no turn."""
    return {
        "key": encode_key(TrajectoryKey.of(record)),
        "rolloutId": record["rollout_id"],
        "reward": record["reward"],
        "cell": show_cell(trajectory, main_turns(trajectory), 0),
    }
