"""Rollouts: trajectories as the rollout summaries of a tinker-cookbook training run.

Invariant: a file holds the trajectories of one iteration and split. In it each group has a number, and each trajectory
has a number in its group, so that `TrainingRunStore.read_single_rollout` finds it. A step is a call, in their order.
The reward of a step is the call's own; a step of the app gives its reward to its last call. total_reward is the final
reward of the trajectory, and final_reward is what the steps do not have of it. What is unknown is null, or absent in a
trace.

Source: `tinker_cookbook.rl.rollout_logging` (schema_version 1) and `stores.training_store` of tinker-cookbook 0.6.1.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, cast

import msgspec
from msgspec import Meta

from art_otel.exporting import (
    DefaultSplit,
    ExportStats,
    Folder,
    JsonObject,
    ScoredTrajectory,
    SpillFile,
    Value,
    policy_number,
)
from art_otel.trajectories import (
    Call,
    GroupKey,
    Reward,
    RolloutTrace,
    Trajectory,
    aggregate,
    first_and_last_known,
    rollout_traces,
)

NO_SPLIT: Final = "trajectories without a split, put into the split of the option"
NO_STEP: Final = "trajectories without a training step, put into the iteration of the option"

REWARD: Final = "reward"
FINAL_REWARD: Final = "final_reward"
"""The name under which `art_otel_tinker.tracing.trace_builder` records the reward that the group gave."""

_TRAIN: Final = "train"
_LONGEST_NAME: Final = 100
_NO_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_TRACE: Final = ("prompt", "policy_response", "reward_data", "env_state", "extra")
_STEP_FIELDS: Final = ("metrics", "logs")
"""Parts of `env_state` that a step of tinker-cookbook has fields for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TinkerRolloutsConfig:
    """Options of `rollouts`."""

    split: DefaultSplit = "train"
    iteration: Annotated[
        int, Meta(ge=0, description="the iteration of trajectories without a training step, or with one below 0")
    ] = 0
    traces: Annotated[
        bool,
        Meta(description="whether a step has its trace (prompt, answer, rewards) beside lengths and numbers"),
    ] = True


def encode_rollouts(
    items: Iterator[ScoredTrajectory], config: TinkerRolloutsConfig, stats: ExportStats
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
        group_idx, traj_idx = numbers.of(path, trajectory.group_key)
        position = {"split": label, "iteration": iteration, "group_idx": group_idx, "traj_idx": traj_idx}
        yield path, msgspec.json.encode(_record(trajectory, position, traces=config.traces)) + b"\n"


@dataclass(frozen=True, slots=True)
class IterationFolders:
    """The folder of a run. Records wait on disk until all records of their file are known."""

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


class _Numbers:
    """The numbers of groups in their file, and of trajectories in their group. About 100 bytes a group."""

    def __init__(self) -> None:
        self._groups: Counter[str] = Counter()
        self._numbers: dict[tuple[str, GroupKey], int] = {}
        self._members: Counter[tuple[str, GroupKey]] = Counter()

    def of(self, path: str, key: GroupKey | None) -> tuple[int, int]:
        """Return the numbers of the next trajectory. One without a group is a group by itself."""
        if key is None:
            return self._next_group(path), 0
        group = path, key
        if group not in self._numbers:
            self._numbers[group] = self._next_group(path)
        self._members[group] += 1
        return self._numbers[group], self._members[group] - 1

    def _next_group(self, path: str) -> int:
        self._groups[path] += 1
        return self._groups[path] - 1


def _names(split: str) -> tuple[str, str]:
    """Return tinker-cookbook's name of a split and the beginning of its file names: `eval/gsm8k` and `eval_gsm8k`."""
    if split == _TRAIN:
        return _TRAIN, _TRAIN
    name = split.removeprefix("eval/").removeprefix("eval_")
    return f"eval/{name}", f"eval_{_NO_FILE_NAME.sub('_', name)[:_LONGEST_NAME]}"


def _record(trajectory: Trajectory, position: JsonObject, *, traces: bool) -> JsonObject:
    steps = _steps(trajectory, traces=traces)
    total = trajectory.reward
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
    of_rollout = (reward for reward in trajectory.rewards if reward.target is None and reward.step is None)
    recorded = aggregate(reward for reward in of_rollout if reward.name == FINAL_REWARD)
    if recorded is not None:
        return recorded
    rest = total - sum(step["reward"] or 0.0 for step in steps)
    return rest if math.isfinite(rest) else None


def _client_step(trajectory: Trajectory) -> int | None:
    """Return the first policy version if it is the number of a step."""
    versions = first_and_last_known(trajectory)
    return None if versions is None else policy_number(versions.first)


def _tags(trajectory: Trajectory) -> list[str]:
    """Return the tags that `art_otel_tinker.tracing.trace_builder` recorded, else the name."""
    tags = trajectory.metadata.get("tags")
    if isinstance(tags, list):
        return [str(tag) for tag in tags]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] # JSON
    return [] if trajectory.name is None else [trajectory.name]


def _steps(trajectory: Trajectory, *, traces: bool) -> list[JsonObject]:
    """Make a step of each call, with its trace if `traces` is true."""
    rewards = call_rewards(trajectory)
    last = len(trajectory.calls) - 1
    steps = [
        _step(number, call, rewards[number], episode_done=number == last)
        for number, call in enumerate(trajectory.calls)
    ]
    if traces:
        for step, call, trace in zip(steps, trajectory.calls, rollout_traces(trajectory), strict=True):
            step["trace"] = _trace(trace, call)
    return steps


def call_rewards(trajectory: Trajectory) -> list[float | None]:
    """Return the reward named `reward` of each call, aggregated if there are several. Shape: (calls,)."""
    of_call: dict[str, list[Reward]] = {}
    of_step: dict[int, list[Reward]] = {}
    calls = {call.span_id: number for number, call in enumerate(trajectory.calls)}
    ends = {call.step: number for number, call in enumerate(trajectory.calls) if call.step is not None}
    for one in trajectory.rewards:
        if one.name != REWARD or one.token_start is not None or one.choice is not None:
            continue
        if one.target in calls:
            of_call.setdefault(one.target, []).append(one)
        elif one.step is not None and one.target_kind is None:
            of_step.setdefault(one.step, []).append(one)
    rewards = [aggregate(of_call.get(call.span_id, ())) for call in trajectory.calls]
    for step, step_rewards in of_step.items():
        value = aggregate(step_rewards)
        if step in ends and value is not None:
            rewards[ends[step]] = value + (rewards[ends[step]] or 0.0)
    return rewards


def _step(number: int, call: Call, reward: float | None, *, episode_done: bool) -> JsonObject:
    env_fields = {name: _object(call.env_state.get(name)) or {} for name in _STEP_FIELDS}
    return {
        "step_idx": number,
        "ob_len": None if call.prompt_token_ids is None else len(call.prompt_token_ids),
        "ac_len": _sampled_tokens(call),
        "reward": reward,
        "episode_done": episode_done,
        **env_fields,
    }


def _trace(trace: RolloutTrace, call: Call) -> JsonObject:
    """The five parts of a trace, without those that are unknown and those that the step has already."""
    parts: JsonObject = {name: getattr(trace, name) for name in _TRACE}
    state = call.env_state
    rest = {name: value for name, value in state.items() if name not in _STEP_FIELDS or _object(value) is None}
    return {name: part for name, part in {**parts, "env_state": rest or None}.items() if part is not None}


def _sampled_tokens(call: Call) -> int | None:
    """Count the sampled tokens of all choices; None if those of one are unknown."""
    lengths = [None if choice.token_ids is None else len(choice.token_ids) for choice in call.choices or ()]
    present = [length for length in lengths if length is not None]
    return sum(present) if present and len(present) == len(lengths) else None


def _object(value: Value) -> dict[str, Value] | None:
    return cast(dict[str, Value], value) if isinstance(value, dict) else None
