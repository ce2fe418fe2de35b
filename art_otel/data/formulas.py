"""Formulas: the advantages of all groups at once, as arrays. `advantages` has their documentation and sources.

    values   1.0 0.0 NaN  1.0  0.5 0.5      NaN: no reward
    owners    0   0   0    1    2   2       the group of each value

Invariant: the result for each group is, bit by bit, that of the function in `advantages` for this group alone. Sums are
rounded once, as by `math.fsum`, so that neither the order in a group nor the number of groups changes a result.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.data.columns import Floats

Deviation: TypeAlias = Literal["population", "sample"]
LOST_DEGREES: Final[Mapping[Deviation, int]] = {"population": 0, "sample": 1}

_SHORT: Final = 64
"""Groups of at most so many members are summed together by arrays; a larger group is fast enough by itself."""


@dataclass(frozen=True, slots=True)
class GroupedRewards:
    """Numbers of `count` groups, group after group; `owners` is the group of each. Shape: (members of all,)."""

    values: Floats
    owners: NDArray[np.intp]
    count: int

    @classmethod
    def one(cls, values: Floats) -> "GroupedRewards":
        """All values as one group."""
        return cls(values, np.zeros(len(values), np.intp), 1)

    def of(self, values: Floats) -> "GroupedRewards":
        """Other numbers of the same members."""
        return GroupedRewards(values, self.owners, self.count)


Formula: TypeAlias = Callable[[GroupedRewards], Floats]
"""Rewards to advantages, NaN where the reward is. Shape: (members of all,) -> (members of all,)."""


def centered(groups: GroupedRewards) -> Floats:
    """Each value minus the mean of its group."""
    known = ~np.isnan(groups.values)
    values, owners = groups.values[known], groups.owners[known]
    means = _sums(values, owners, groups.count) / np.maximum(_sizes(groups), 1)
    least, most = np.full(groups.count, np.inf), np.full(groups.count, -np.inf)
    np.minimum.at(least, owners, values)
    np.maximum.at(most, owners, values)
    # A rounded mean may lie outside of the values' range; then equal rewards would have advantages other than 0.
    return groups.values - np.minimum(np.maximum(means, least), most)[groups.owners]


def grpo(groups: GroupedRewards, *, std: Deviation = "population", epsilon: float = 1e-6) -> Floats:
    """Centered, divided by the deviation of the group + epsilon."""
    deviations = centered(groups)
    divisors = (np.sqrt(_variances(groups.of(deviations), std)) + epsilon)[groups.owners]
    return np.divide(deviations, divisors, out=deviations * 0.0, where=divisors != 0)


def rloo(groups: GroupedRewards) -> Floats:
    """Centered, times n / (n - 1)."""
    sizes = _sizes(groups)
    return centered(groups) * (sizes / np.maximum(sizes - 1, 1))[groups.owners]


def grpo_batch(groups: GroupedRewards) -> Floats:
    """Centered by group, divided by the sample deviation of all rewards."""
    deviations = GroupedRewards.one(centered(GroupedRewards.one(groups.values)))
    return centered(groups) / (np.sqrt(_variances(deviations, "sample")) + 1e-4)


def reinforce_plus_plus(groups: GroupedRewards) -> Floats:
    """Centered by the mean of all rewards, divided by their population deviation."""
    deviations = centered(GroupedRewards.one(groups.values))
    return deviations / np.sqrt(_variances(GroupedRewards.one(deviations), "population") + 1e-8)


def reinforce_plus_plus_baseline(groups: GroupedRewards) -> Floats:
    """Centered by group, divided by the population deviation of all centered values."""
    deviations = centered(groups)
    return deviations / np.sqrt(_variances(GroupedRewards.one(deviations), "population") + 1e-8)


def gdpo(rewards: Mapping[str, GroupedRewards], weights: Mapping[str, float]) -> Floats:
    """The weighted sum of each reward's own GRPO; this sum is centered and divided by its deviation over all groups."""
    normalized: list[Floats] = []
    for name, weight in weights.items():
        deviations = rewards[name].of(centered(rewards[name]))
        divisors = np.sqrt(_variances(deviations, "sample")) + 1e-4
        normalized.append(weight * deviations.values / divisors[deviations.owners])
    table = np.array(normalized)
    sums = np.where(np.isnan(table).all(axis=0), np.nan, np.nansum(table, axis=0))
    deviations = centered(GroupedRewards.one(sums))
    return deviations / (np.sqrt(_variances(GroupedRewards.one(deviations), "sample")) + 1e-4)


def _sizes(groups: GroupedRewards) -> NDArray[np.intp]:
    return np.bincount(groups.owners[~np.isnan(groups.values)], minlength=groups.count)


def _variances(deviations: GroupedRewards, std: Deviation) -> Floats:
    """The variance of each group of numbers with mean 0; 0.0 for a group of one. Shape: (groups,)."""
    known = ~np.isnan(deviations.values)
    squares = _sums(deviations.values[known] ** 2, deviations.owners[known], deviations.count)
    # The square of a single number here is 0.0, so any divisor but 0 is right.
    return squares / np.maximum(_sizes(deviations) - LOST_DEGREES[std], 1)


def _sums(values: Floats, owners: NDArray[np.intp], count: int) -> Floats:
    """The sum of each group, rounded once. Shape: (groups,).

    Of a + b, rounded to s, the error (a - (s - d)) + (b - d) with d = s - a is a float (Knuth 1998, The Art of Computer
    Programming 2, 4.2.2). The errors are summed beside the sums; where that has errors, too, `fsum` sums the group.
    """
    bounds = np.searchsorted(owners, np.arange(count + 1))
    starts, sizes = bounds[:-1], np.diff(bounds)
    is_exact = (sizes <= _SHORT) & (count > _SHORT)  # few groups are not worth arrays
    sums, errors = np.zeros(count), np.zeros(count)
    for member in range(int(sizes[is_exact].max(initial=0))):
        which = np.flatnonzero(is_exact & (sizes > member))
        sums[which], error = _added(sums[which], values[starts[which] + member])
        errors[which], rest = _added(errors[which], error)
        is_exact[which] = rest == 0
    sums += errors
    for group in np.flatnonzero(~is_exact).tolist():
        sums[group] = math.fsum(values[bounds[group] : bounds[group + 1]])
    return sums


def _added(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The sums, and what rounding them took away."""
    sums = one + other
    of_other = sums - one
    return sums, (one - (sums - of_other)) + (other - of_other)
