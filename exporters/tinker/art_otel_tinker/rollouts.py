"""Rollouts: trajectories as the rollout summaries of a tinker-cookbook training run.

Invariant: a file holds the trajectories of one iteration and split; in it each group has a number, and each trajectory
a number in its group, so that `TrainingRunStore.read_single_rollout` finds it. total_reward is the final reward here,
and final_reward what of it the steps do not have. What is unknown is null, or absent in a trace.

Source: `tinker_cookbook.rl.rollout_logging` (schema_version 1) and `stores.training_store` of tinker-cookbook 0.6.1.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from art_otel.exporting import NULL_REWARD, ExportStats, Folder, ScoredTrajectory, SpillFile, policy_number, unrewarded
from art_otel.trajectories import Trajectory, aggregate, first_and_last_known
from art_otel_tinker.config import RolloutsConfig
from art_otel_tinker.steps import FINAL_REWARD, step_records

JsonObject: TypeAlias = dict[str, Any]

NO_SPLIT: Final = "trajectories without a split put into the one of the options"
NO_STEP: Final = "trajectories without a training step put into the iteration of the options"

_TRAIN: Final = "train"
_LONGEST_NAME: Final = 100
_NO_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


class _Numbers:
    """The numbers of groups in their file, and of trajectories in their group. About 100 bytes a group."""

    def __init__(self) -> None:
        self._groups: Counter[str] = Counter()
        self._numbers: dict[tuple[str, str], int] = {}
        self._members: Counter[tuple[str, str]] = Counter()

    def of(self, path: str, group_id: str | None) -> tuple[int, int]:
        """Return the numbers of the next trajectory; one without a group is a group by itself."""
        if group_id is None:
            return self._next_group(path), 0
        group = path, group_id
        if group not in self._numbers:
            self._numbers[group] = self._next_group(path)
        self._members[group] += 1
        return self._numbers[group], self._members[group] - 1

    def _next_group(self, path: str) -> int:
        self._groups[path] += 1
        return self._groups[path] - 1


def encode_rollouts(
    items: Iterator[ScoredTrajectory], config: RolloutsConfig, stats: ExportStats
) -> Iterator[tuple[str, bytes]]:
    """Yield the file and the JSON line of each trajectory's record."""
    numbers = _Numbers()
    for item in items:
        trajectory = item.trajectory
        split, iteration = trajectory.split, trajectory.training_step
        if split is None:
            split = config.split
            stats.changed[NO_SPLIT] += 1
        if iteration is None or iteration < 0:
            iteration = config.iteration
            stats.changed[NO_STEP] += 1
        label, base_name = _names(split)
        path = f"iteration_{iteration:06d}/{base_name}_rollout_summaries.jsonl"
        group_idx, traj_idx = numbers.of(path, trajectory.group_id)
        if unrewarded(trajectory) == "unusable reward":
            stats.changed[NULL_REWARD] += 1
        position = {"split": label, "iteration": iteration, "group_idx": group_idx, "traj_idx": traj_idx}
        yield path, msgspec.json.encode(_record(trajectory, position, traces=config.traces)) + b"\n"


@dataclass(frozen=True, slots=True)
class IterationFolders:
    """The files of a run's folder. Records wait on disk for those of their file."""

    suffix: str = ""

    def write(self, records: Iterator[tuple[str, bytes]], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the files, replacing those of the same iteration and split."""
        files: dict[str, list[int]] = {}
        with SpillFile[bytes]() as spilled:
            for number, (path, line) in enumerate(records):
                spilled[number] = line
                files.setdefault(path, []).append(number)
            return Folder().write(
                ((path, spilled[number]) for path, numbers in files.items() for number in numbers), out
            )


def _names(split: str) -> tuple[str, str]:
    """What tinker-cookbook calls a split, and how the names of its files begin: `eval/gsm8k` and `eval_gsm8k`."""
    if split == _TRAIN:
        return _TRAIN, _TRAIN
    name = split.removeprefix("eval/").removeprefix("eval_")
    return f"eval/{name}", f"eval_{_NO_FILE_NAME.sub('_', name)[:_LONGEST_NAME]}"


def _record(trajectory: Trajectory, position: JsonObject, *, traces: bool) -> JsonObject:
    steps = step_records(trajectory, traces=traces)
    total = None if unrewarded(trajectory) else trajectory.reward
    return {
        "schema_version": 1,
        **position,
        "tags": _tags(trajectory),
        "sampling_client_step": _client_step(trajectory),
        "total_reward": total,
        "final_reward": None if total is None else _final_reward(trajectory, steps, total),
        "trajectory_metrics": trajectory.metrics,
        "steps": steps,
        "final_ob_len": None,
        "art_otel": {
            "rollout_id": trajectory.rollout_id,
            "group_id": trajectory.group_id,
            "name": trajectory.name,
            "attempt": trajectory.attempt,
            "status": trajectory.status,
            "error": trajectory.error,
            "policy_version": trajectory.policy_version,
            "metadata": trajectory.metadata,
            "logs": trajectory.logs,
        },
    }


def _final_reward(trajectory: Trajectory, steps: list[JsonObject], total: float) -> float | None:
    """Return the recorded final reward, which is exact, else the total minus the steps' rewards."""
    whole = (one for one in trajectory.rewards if one.target is None and one.step is None)
    named = aggregate(one for one in whole if one.name == FINAL_REWARD)
    if named is not None:
        return named
    rest = total - sum(step["reward"] or 0.0 for step in steps)
    return rest if math.isfinite(rest) else None


def _client_step(trajectory: Trajectory) -> int | None:
    """The policy version, where it is the number of a step."""
    versions = first_and_last_known(trajectory)
    return None if versions is None else policy_number(versions.first)


def _tags(trajectory: Trajectory) -> list[str]:
    """Return the tags that `art_otel_tinker.trace_builder` recorded, else the name."""
    tags = trajectory.metadata.get("tags")
    if isinstance(tags, list):
        return [str(tag) for tag in tags]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] # JSON
    return [] if trajectory.name is None else [trajectory.name]
