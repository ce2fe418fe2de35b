"""RunMetrics: what is logged of a batch of trajectories, and under which names.

Invariant: an unknown reward or metric is in no mean; how many rewards are unknown is a metric of its own. A number that
nobody can know (a spread without two rewards, a mean of nothing) is absent and not 0.

Names and rules are those of `Model.log` and `art.metrics_taxonomy` of openpipe-art 0.5.18. Its running totals
(`*/cum/*`), sums over branches of `costs/` and automatic timings are the trainer's and not made here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import pstdev
from typing import Final

from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory, TrajectoryGroup

SPLITS: Final = frozenset({"train", "val", "test"})
SECTIONS: Final = frozenset({"reward", "loss", "offpolicy", "pipeline", "throughput", "costs", "time", "data"})
_ADDITIVE: Final = ("costs/", "time/step_", "data/step_", "throughput/step_")
"""Names of what is spent: these are summed over a batch, all others are averaged."""


def batch_metrics(groups: Sequence[TrajectoryGroup], split: str) -> dict[str, float]:
    """The metrics of a batch, before `prefixed`.

    `reward` is the mean over the trajectories that have one, `exception_rate` the part of them that ended in an
    exception (status `error` or `cancelled`), `reward_std_dev` the mean over groups of two or more rewards of their
    population standard deviation. Each trajectory metric has its mean (or sum) under its own name, each group's metric
    under `group_{name}`; a trajectory's of a name above is left out. `data/step_num_*` count; in the split train also
    the groups whose rewards differ.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    rewards = [_known_rewards(group.trajectories) for group in groups]
    spreads = [pstdev(group_rewards) for group_rewards in rewards if len(group_rewards) > 1]
    raised = [float(trajectory.status in ("error", "cancelled")) for trajectory in trajectories]
    counts = {
        "scenarios": len(groups),
        "trajectories": len(trajectories),
        "groups_submitted": len(groups),
        "trajectories_without_reward": len(trajectories) - sum(map(len, rewards)),
    }
    if split == "train":
        counts["groups_trainable"] = sum(len(set(group_rewards)) > 1 for group_rewards in rewards)
    standard_metrics = {
        "reward": [one for group_rewards in rewards for one in group_rewards],
        "exception_rate": raised,
        "reward_std_dev": spreads,
    }
    return {
        **_combined(pair for one in trajectories for pair in one.metrics.items() if pair[0] not in standard_metrics),
        **_combined(_group_pairs(groups)),
        **{name: _mean(values) for name, values in standard_metrics.items() if values},
        **{f"data/step_num_{name}": float(count) for name, count in counts.items()},
    }


def unknown_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """The metrics of a batch that are NaN or infinite somewhere, before `prefixed`: such a value is in no mean."""
    trajectory_metrics = (pair for group in groups for one in group.trajectories for pair in one.metrics.items())
    return {name: value for name, value in (*trajectory_metrics, *_group_pairs(groups)) if not math.isfinite(value)}


def as_numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """The metrics as floats; None is NaN. Raises UsageError for what is no number."""
    return {name: _number(name, value) for name, value in metrics.items()}


def prefixed(metrics: Mapping[str, float], split: str) -> dict[str, float]:
    """The metrics under the names of the log: `{split}/{name}`.

    In the splits train, val and test a name that begins with `{section}/` or `{split}/` of ART's stays as it is.
    """
    return {name if split in SPLITS and _is_placed(name) else f"{split}/{name}": metrics[name] for name in metrics}


def _is_placed(name: str) -> bool:
    first, slash, _ = name.partition("/")
    return bool(slash) and first in SECTIONS | SPLITS


def _known_rewards(trajectories: Iterable[Trajectory]) -> list[float]:
    return [one.reward for one in trajectories if one.reward is not None and math.isfinite(one.reward)]


def _group_pairs(groups: Iterable[TrajectoryGroup]) -> Iterator[tuple[str, float]]:
    for group in groups:
        for name, value in as_numbers(group.metrics).items():
            yield (name if name.startswith(_ADDITIVE) else f"group_{name}"), value


def _combined(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for name, value in pairs:
        if math.isfinite(value):
            values[name].append(value)
    return {
        name: sum(metric_values) if name.startswith(_ADDITIVE) else _mean(metric_values)
        for name, metric_values in values.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _number(name: str, value: object) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)  # pyright: ignore[reportArgumentType] # whatever has __float__: numpy's and torch's too
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"metrics: {name!r} is {value!r}, which is not a number") from error
