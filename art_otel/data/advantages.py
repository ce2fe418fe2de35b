"""Advantages: how much better each member of a group did than its group.

    centered([1.0, 0.0, None])      [0.5, -0.5, nan]

Invariant: an advantage is NaN if and only if its reward is None; such a member counts in no mean and no deviation. All
other advantages are finite and do not depend on the order of the group. In a group of one, or of equal rewards, nobody
is better: its advantages are exactly 0.0, unless the baseline comes from outside of the group.

In all formulas r_i is the reward of member i, and mean, std and n are those of the members with a reward. A formula
that also compares groups with each other is an `OverGroups`: "all rewards" are those of every group that is read. A
formula that compares each of several rewards by itself is an `OverRewards`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from art_otel.data import formulas
from art_otel.errors import UsageError

Rewards: TypeAlias = Sequence[float | None]
"""The rewards of one group, None for a member without a reward. Shape: (members,)."""

Advantages: TypeAlias = NDArray[np.float64]
"""Shape: (members,), NaN where the reward is None."""

GroupAdvantage: TypeAlias = Callable[[Rewards], ArrayLike]
"""Computes the advantages of one group: shape (members,) -> (members,)."""


@dataclass(frozen=True, slots=True)
class OverGroups:
    """Computes the advantages of all groups at once: shape groups x (members,) -> groups x (members,)."""

    formula: Callable[[Sequence[Rewards]], Sequence[ArrayLike]]


NamedRewards: TypeAlias = Mapping[str, Rewards]
"""The rewards of one group by their names, each of shape (members,)."""


@dataclass(frozen=True, slots=True)
class OverRewards:
    """Computes the advantages of all groups from several named rewards and the weight of each name.

    Shape: groups x names x (members,) -> groups x (members,).
    """

    formula: Callable[[Sequence[NamedRewards], Mapping[str, float]], Sequence[ArrayLike]]


Advantage: TypeAlias = GroupAdvantage | OverGroups | OverRewards
"""Computes advantages, of one group or of all at once."""

AdvantageName: TypeAlias = Literal[
    "grpo",
    "grpo_sample",
    "dr_grpo",
    "rloo",
    "centered",
    "grpo_batch",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "gdpo",
]

_LARGEST: Final = 1e150
"""The bound of rewards: below it, their squares and the sum of these over a group are finite."""


def centered(rewards: Rewards) -> Advantages:
    """A_i = r_i - mean(r).

    Source: `compute_advantages` of tinker-cookbook (rl/data_processing.py). Shape: (members,) -> (members,).
    One member with a reward: 0.0. Zero variance: 0.0. All None: all NaN. Raises UsageError with the position of a
    reward that is NaN, infinite or not below 1e150.
    """
    return formulas.centered(_alone(rewards))


def dr_grpo(rewards: Rewards) -> Advantages:
    """A_i = r_i - mean(r): GRPO without its division by std, which favors tasks that are too easy or too hard.

    The other half of Dr. GRPO is the loss: a sum over tokens divided by a constant, not by each response's length.
    Source: Liu et al. 2025, Understanding R1-Zero-Like Training (arXiv 2503.20783); verl's
    `norm_adv_by_std_in_grpo=False`. Shape: (members,) -> (members,). One member with a reward: 0.0 (verl keeps its raw
    reward). Zero variance: 0.0. All None: all NaN. Raises UsageError with the position of a reward that is NaN,
    infinite or not below 1e150.
    """
    return centered(rewards)


def grpo(rewards: Rewards, *, std: Literal["population", "sample"] = "population", epsilon: float = 1e-6) -> Advantages:
    """A_i = (r_i - mean(r)) / (std(r) + epsilon), where std(r)^2 = sum_j (r_j - mean(r))^2 / n, or / (n - 1).

    Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300). `population` (n) is ART's local trainer, `sample` (n - 1)
    verl, Trinity-RFT and ART on tinker; epsilon is 1e-6 in all but ART on tinker and the paper, which have none.
    Shape: (members,) -> (members,). One member with a reward: 0.0 (verl and Trinity-RFT keep its raw reward). Zero
    variance: 0.0, with epsilon 0 too. All None: all NaN. Raises UsageError with the position of a reward that is NaN,
    infinite or not below 1e150, and for another `std` or an epsilon that is negative or not finite.
    """
    if std not in formulas.LOST_DEGREES:
        raise UsageError(f'std: {std!r}; use "population" or "sample"')
    if not 0 <= epsilon < math.inf:
        raise UsageError(f"epsilon: {epsilon!r}; use a finite number of 0 or more, such as 1e-6")
    return formulas.grpo(_alone(rewards), std=std, epsilon=epsilon)


def rloo(rewards: Rewards) -> Advantages:
    """A_i = r_i - mean of the other members' rewards = (r_i - mean(r)) * n / (n - 1).

    Source: Kool et al. 2019, Buy 4 REINFORCE Samples, Get a Baseline for Free!; Ahmadian et al. 2024, Back to Basics
    (arXiv 2402.14740); verl's `rloo`. Shape: (members,) -> (members,). One member with a reward: 0.0, as no other is
    left (verl keeps its raw reward). Zero variance: 0.0. All None: all NaN. Raises UsageError with the position of a
    reward that is NaN, infinite or not below 1e150.
    """
    return formulas.rloo(_alone(rewards))


def reinforce(rewards: Rewards, *, baseline: float) -> Advantages:
    """A_i = r_i - baseline, where the baseline does not depend on these rewards (a running mean, a value, 0.0).

    Source: Williams 1992, Simple Statistical Gradient-Following Algorithms. Shape: (members,) -> (members,).
    One member with a reward: r - baseline, as for any other. Zero variance: r - baseline for all. All None: all NaN.
    Raises UsageError with the position of a reward that is NaN, infinite or not below 1e150, and for such a baseline.
    """
    return _values(rewards, "rewards") - _checked(baseline, "baseline")


def grpo_batch(groups: Sequence[Rewards]) -> tuple[Advantages, ...]:
    """A_i = (r_i - mean of its group) / (std of all rewards + 1e-4), with the sample deviation.

    Source: TRL's `scale_rewards="batch"`; Liu et al. 2025, Part I: Tricks or Traps (arXiv 2508.08221).
    Shape: groups x (members,) -> groups x (members,). A group of one, or of equal rewards: 0.0. Raises UsageError as
    `grpo` does.
    """
    return _of_each(groups, formulas.grpo_batch(_joined(groups)))


def reinforce_plus_plus(groups: Sequence[Rewards]) -> tuple[Advantages, ...]:
    """A_i = (r_i - mean of all rewards) / sqrt(variance of all rewards + 1e-8), with the population variance.

    The baseline is that of the batch, so groups may have one member. Each reward counts once; verl and OpenRLHF count
    it once for each trained token. If all completions are equally long, the results are the same, except that verl
    divides the variance by one less.
    Source: Hu et al. 2025, REINFORCE++ (arXiv 2501.03262); verl's `reinforce_plus_plus` with gamma 1.
    Shape: groups x (members,) -> groups x (members,). One reward in all, or equal rewards: 0.0. Raises UsageError as
    `grpo` does.
    """
    return _of_each(groups, formulas.reinforce_plus_plus(_joined(groups)))


def reinforce_plus_plus_baseline(groups: Sequence[Rewards]) -> tuple[Advantages, ...]:
    """A_i = d_i / sqrt(variance of all d + 1e-8), where d_i = r_i - mean of its group, with the population variance.

    Each reward counts once, as in `reinforce_plus_plus`. Source: the same paper; verl's `reinforce_plus_plus_baseline`.
    Shape: groups x (members,) -> groups x (members,). A group of one, or of equal rewards: 0.0 (verl keeps the raw
    reward of one member). Raises UsageError as `grpo` does.
    """
    return _of_each(groups, formulas.reinforce_plus_plus_baseline(_joined(groups)))


def gdpo(groups: Sequence[NamedRewards], weights: Mapping[str, float]) -> tuple[Advantages, ...]:
    """A_i = (s_i - mean of all s) / (std of all s + 1e-4), s_i = sum_k w_k (r_ik - mean_k) / (std_k + 1e-4).

    Mean_k and std_k are those of reward k in its group, all deviations are sample deviations. So a reward with small
    differences counts as much as a reward with large ones, which would hide it in a sum:

        correct  1 0 1 0      summed first    r + 10 l: length decides
        length   9 8 7 8      GDPO            both alike

    Source: GDPO, Group reward-Decoupled Normalization Policy Optimization (arXiv 2601.05242); TRL's
    `multi_objective_aggregation="normalize_then_sum"` (grpo_trainer.py of 1.16). As there, a reward that a member does
    not have counts in no mean and adds nothing to its sum. Shape: groups x names x (members,) -> groups x (members,).
    A reward that one member alone has, or of zero variance: adds 0.0 before the last mean is taken off. All s equal, or
    one alone: 0.0. No reward of any name: NaN. Raises UsageError as `grpo` does.
    """
    named = {name: _joined([group[name] for group in groups], f"[{name!r}]") for name in weights}
    return _of_each([next(iter(group.values())) for group in groups], formulas.gdpo(named, weights))


def step_level(rewards: Sequence[Rewards], advantage: Callable[[Rewards], Advantages] = grpo) -> tuple[Advantages, ...]:
    """A_i,k = advantage of r_i,k among r_j,k of all members j that have a step k: each step index is its own group.

    `rewards[i][k]` is the reward of member i at its step k; members may have different numbers of steps. `advantage`
    is any function of one group here, e.g. `partial(grpo, std="sample")`.
    Source: rLLM's `stepwise_advantage.mode=per_step`, which groups by step id.
    Shape: members x (their steps,) -> members x (their steps,). A step that one member alone reached, zero variance
    and all None at a step: as `advantage` says of such a group. Raises UsageError with member and step of a reward that
    is NaN, infinite or not below 1e150.
    """
    advantages = [_values(steps, f"rewards[{member}]") for member, steps in enumerate(rewards)]
    for step in range(max(map(len, rewards), default=0)):
        members = [member for member, steps in enumerate(rewards) if len(steps) > step]
        for member, value in zip(members, advantage([rewards[member][step] for member in members]), strict=True):
            advantages[member][step] = value
    return tuple(advantages)


ADVANTAGES: Final[Mapping[str, GroupAdvantage]] = {
    "grpo": grpo,
    "grpo_sample": partial(grpo, std="sample"),
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "centered": centered,
}
"""Advantages of one group by name; others are given as functions of one group's rewards."""

ADVANTAGES_OVER_GROUPS: Final[Mapping[str, OverGroups]] = {
    "grpo_batch": OverGroups(grpo_batch),
    "reinforce_plus_plus": OverGroups(reinforce_plus_plus),
    "reinforce_plus_plus_baseline": OverGroups(reinforce_plus_plus_baseline),
}
"""Advantages of all groups at once by name; others are given as an `OverGroups`."""


ADVANTAGES_OVER_REWARDS: Final[Mapping[str, OverRewards]] = {"gdpo": OverRewards(gdpo)}
"""Advantages of several rewards, each normalized by itself, by name; others are given as an `OverRewards`."""


def find_advantage(advantage: AdvantageName | Advantage | None) -> Advantage | None:
    """The advantage of this name, or the function itself; None for no advantages. Raises UsageError."""
    if advantage is None or isinstance(advantage, OverGroups | OverRewards) or callable(advantage):
        return advantage
    named: dict[str, Advantage] = {**ADVANTAGES, **ADVANTAGES_OVER_GROUPS, **ADVANTAGES_OVER_REWARDS}
    if formula := named.get(advantage) if isinstance(advantage, str) else None:  # pyright: ignore[reportUnnecessaryIsInstance] # not every caller is typed
        return formula
    raise UsageError(
        f"advantage={advantage!r:.200}: use one of {', '.join(named)}, a function of one group's rewards, an"
        " OverGroups or OverRewards, or None"
    )


def name_of(advantage: Advantage | None) -> AdvantageName | None:
    """The name of an advantage; None for a user's own function."""
    named = {**ADVANTAGES, **ADVANTAGES_OVER_GROUPS, **ADVANTAGES_OVER_REWARDS}
    return cast("AdvantageName | None", next((name for name, one in named.items() if one == advantage), None))


FORMULAS: Final[Mapping[AdvantageName, formulas.Formula]] = {
    "grpo": formulas.grpo,
    "grpo_sample": partial(formulas.grpo, std="sample"),
    "dr_grpo": formulas.centered,
    "rloo": formulas.rloo,
    "centered": formulas.centered,
    "grpo_batch": formulas.grpo_batch,
    "reinforce_plus_plus": formulas.reinforce_plus_plus,
    "reinforce_plus_plus_baseline": formulas.reinforce_plus_plus_baseline,
}
"""The named advantages of one reward, for all groups at once."""


def _alone(rewards: Rewards) -> formulas.GroupedRewards:
    return formulas.GroupedRewards.one(_values(rewards, "rewards"))


def _joined(groups: Sequence[Rewards], of_name: str = "") -> formulas.GroupedRewards:
    """The rewards of all groups in one array, group after group."""
    values = [_values(rewards, f"rewards[{number}]{of_name}") for number, rewards in enumerate(groups)]
    owners = np.repeat(np.arange(len(groups)), list(map(len, groups)))
    return formulas.GroupedRewards(np.concatenate([np.zeros(0), *values]), owners, len(groups))


def _of_each(groups: Sequence[Rewards], advantages: Advantages) -> tuple[Advantages, ...]:
    """Split the advantages of all groups into those of each group."""
    return tuple(np.split(advantages, np.cumsum(list(map(len, groups)))[:-1])) if groups else ()


def _values(rewards: Rewards, path: str) -> Advantages:
    """The rewards as float64, NaN for None."""
    numbers = [
        math.nan if reward is None else reward if abs(reward) < _LARGEST else _checked(reward, f"{path}[{position}]")
        for position, reward in enumerate(rewards)
    ]
    return np.array(numbers, dtype=np.float64)


def _checked(number: float, path: str) -> float:
    if not abs(number) < _LARGEST:  # also True for NaN
        raise UsageError(f"{path}: {number!r}; a reward is a number below {_LARGEST:g}, or None where there is none")
    return float(number)
