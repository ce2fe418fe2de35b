"""Advantages: each equals a table worked out by hand, and keeps the laws of its formula."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from art_otel.data import (
    ADVANTAGES,
    ADVANTAGES_OVER_GROUPS,
    centered,
    dr_grpo,
    grpo,
    grpo_batch,
    reinforce,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rloo,
    step_level,
)
from art_otel.data.advantages import FORMULAS
from art_otel.data.formulas import GroupedRewards
from art_otel.errors import UsageError
from tests.data.batch_options import laws
from tests.examples import examples

sample_grpo = partial(grpo, std="sample")
ALL = [centered, dr_grpo, grpo, sample_grpo, rloo, partial(reinforce, baseline=0.25)]
RELATIVE = ALL[:-1]
"""Those that compare the group with itself."""

GROUP = st.lists(st.none() | st.floats(-1e37, 1e37), min_size=1, max_size=9)
REWARDS = st.lists(st.none() | st.floats(-100, 100), max_size=8)

TABLE = [
    # Rewards 1, 2, 3, 6: mean 3, deviations -2 -1 0 3, their squares 4 + 1 + 0 + 9 = 14.
    # Population: sqrt(14 / 4) = 1.870828693; -2, -1, 0, 3 over it. Sample: sqrt(14 / 3) = 2.160246899.
    # RLOO: means of the others 11/3, 10/3, 3, 2. Baseline 2: each less 2.
    (centered, [1, 2, 3, 6], [-2, -1, 0, 3]),
    (dr_grpo, [1, 2, 3, 6], [-2, -1, 0, 3]),
    (partial(grpo, epsilon=0), [1, 2, 3, 6], [-1.069044968, -0.534522484, 0, 1.603567451]),
    (partial(sample_grpo, epsilon=0), [1, 2, 3, 6], [-0.925820100, -0.462910050, 0, 1.388730150]),
    (rloo, [1, 2, 3, 6], [-8 / 3, -4 / 3, 0, 4]),
    (partial(reinforce, baseline=2), [1, 2, 3, 6], [-1, 0, 1, 4]),
    # Rewards 0, 1: mean 1/2, squares 1/4 + 1/4 = 1/2. Population: 1/2. Sample: sqrt(1/2) = 0.7071067812.
    # Epsilon 1/2: 0.5 / (0.5 + 0.5) = 0.5; epsilon 0.2928932188 makes the sample divisor 1.
    (partial(grpo, epsilon=0.5), [0, 1], [-0.5, 0.5]),
    (partial(sample_grpo, epsilon=0.2928932188), [0, 1], [-0.5, 0.5]),
    (rloo, [0, 1], [-1, 1]),
    # The one without a reward counts nowhere: 1 and 3 have mean 2, deviations -1 1, population std 1, sample sqrt(2).
    # Were it 0, the mean would be 4/3.
    (centered, [1, None, 3], [-1, math.nan, 1]),
    (partial(grpo, epsilon=0), [1, None, 3], [-1, math.nan, 1]),
    (partial(sample_grpo, epsilon=0), [1, None, 3], [-0.7071067812, math.nan, 0.7071067812]),
    (rloo, [1, None, 3], [-2, math.nan, 2]),
    (partial(reinforce, baseline=-1), [1, None, 3], [2, math.nan, 4]),
]


@pytest.mark.parametrize(("advantage", "rewards", "expected"), TABLE)
def test_the_table(advantage, rewards, expected):
    np.testing.assert_allclose(advantage(rewards), expected, rtol=1e-9, atol=1e-12)


def test_epsilon_is_a_millionth_when_not_given():
    assert grpo([0, 1])[1] == 0.5 / (0.5 + 1e-6)


@pytest.mark.parametrize("advantage", RELATIVE)
@pytest.mark.parametrize("rewards", [[0.7], [None, 0.7], [0.1, 0.1, 0.1], [0.1, None, 0.1], [1e149] * 7, [-5e-324] * 3])
def test_one_member_and_equal_rewards_are_exactly_zero(advantage, rewards):
    found = advantage(rewards)
    assert [value == 0.0 for value in found] == [reward is not None for reward in rewards]


@pytest.mark.parametrize("std", ["population", "sample"])
@pytest.mark.parametrize("rewards", [[0.3], [0.3, 0.3], [0, 5e-324]])
def test_no_spread_and_no_epsilon_is_zero_and_not_a_division_by_zero(std, rewards):
    assert grpo(rewards, std=std, epsilon=0).tolist() == [0.0] * len(rewards)


@pytest.mark.parametrize("advantage", ALL)
def test_without_rewards_all_is_unknown(advantage):
    assert np.isnan(advantage([None, None])).all()
    assert advantage([]).shape == (0,)
    assert advantage([None]).dtype == advantage([1]).dtype == np.float64


@pytest.mark.parametrize("advantage", ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e150, -1e308, 10**400, np.float64("nan")])
def test_a_reward_that_is_no_finite_number_is_refused_with_its_place(advantage, bad):
    with pytest.raises(UsageError, match=r"^rewards\[2\]: "):
        advantage([1.0, None, bad, 2.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e150])
def test_a_baseline_that_is_no_finite_number_is_refused(bad):
    with pytest.raises(UsageError, match=r"^baseline: "):
        reinforce([1.0], baseline=bad)


@pytest.mark.parametrize("epsilon", [-1e-9, math.nan, math.inf])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(UsageError, match=r"^epsilon: "):
        grpo([1.0], epsilon=epsilon)


def test_another_deviation_is_refused():
    with pytest.raises(UsageError, match='use "population" or "sample"'):
        grpo([1.0], std="median")


@pytest.mark.parametrize("advantage", ALL)
@given(st.data(), st.lists(st.none() | st.floats(-9e149, 9e149), max_size=8))
def test_whoever_has_a_reward_has_a_finite_advantage_in_any_order(advantage, data, rewards):
    found = advantage(rewards)
    assert [math.isfinite(value) for value in found] == [reward is not None for reward in rewards]
    order = data.draw(st.permutations(range(len(rewards))))
    np.testing.assert_array_equal(advantage([rewards[at] for at in order]), found[order])


@pytest.mark.parametrize("advantage", RELATIVE)
@given(REWARDS, st.floats(-100, 100))
def test_a_reward_more_for_everybody_changes_nothing(advantage, rewards, more):
    known = [reward for reward in rewards if reward is not None]
    assume(len(known) < 2 or np.std(known) > 1e-3 or len(set(known)) == 1)
    shifted = advantage([None if reward is None else reward + more for reward in rewards])
    np.testing.assert_allclose(shifted, advantage(rewards), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("advantage", [centered, dr_grpo, rloo])
@given(REWARDS, st.floats(-100, 100))
def test_advantages_without_a_deviation_grow_with_the_rewards(advantage, rewards, times):
    scaled = advantage([None if reward is None else reward * times for reward in rewards])
    np.testing.assert_allclose(scaled, advantage(rewards) * times, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("std", ["population", "sample"])
@given(REWARDS, st.floats(0.01, 100))
def test_advantages_over_the_deviation_do_not(std, rewards, times):
    known = [reward for reward in rewards if reward is not None]
    assume(len(known) < 2 or np.std(known) > 1e-3 or len(set(known)) == 1)
    scaled = grpo([None if reward is None else reward * times for reward in rewards], std=std, epsilon=0)
    np.testing.assert_allclose(scaled, grpo(rewards, std=std, epsilon=0), rtol=1e-6, atol=1e-9)


@given(REWARDS)
def test_the_mean_is_zero_and_the_deviation_one(rewards):
    known = [reward for reward in rewards if reward is not None]
    assume(len(known) > 1 and np.std(known) > 1e-3)
    for freedom, std in enumerate(("population", "sample")):
        found = grpo(rewards, std=std, epsilon=0)
        assert np.nanmean(found) == pytest.approx(0, abs=1e-9)
        assert np.nanstd(found, ddof=freedom) == pytest.approx(1)


@given(REWARDS)
def test_to_leave_one_out_is_to_take_the_mean_of_the_others(rewards):
    for at, (reward, value) in enumerate(zip(rewards, rloo(rewards), strict=True)):
        others = [other for place, other in enumerate(rewards) if place != at and other is not None]
        if reward is not None and others:
            assert value == pytest.approx(reward - sum(others) / len(others), abs=1e-9)


def test_each_step_is_a_group_of_its_own():
    # Step 0: 1 and 3 have mean 2; step 1: 4, None and 0 have mean 2; step 2 was reached by one member alone.
    found = step_level([[1, 4], [3, None, 9], [None, 0]], centered)
    expected = [[-1, 2], [1, math.nan, 0], [math.nan, -2]]
    assert [steps.shape for steps in found] == [(2,), (3,), (2,)]
    for steps, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(steps, wanted)


def test_step_groups_are_grpo_unless_said_otherwise():
    np.testing.assert_array_equal(np.stack(step_level([[0], [1]]))[:, 0], grpo([0, 1]))


@given(st.lists(REWARDS, max_size=4))
def test_a_step_is_its_column(rewards):
    found = step_level(rewards, rloo)
    assert [len(steps) for steps in found] == [len(steps) for steps in rewards]
    for step in range(max(map(len, rewards), default=0)):
        column = rloo([steps[step] for steps in rewards if len(steps) > step])
        np.testing.assert_array_equal([steps[step] for steps in found if len(steps) > step], column)


def test_a_bad_reward_of_a_step_is_refused_with_member_and_step():
    with pytest.raises(UsageError, match=r"^rewards\[1\]\[2\]: nan"):
        step_level([[1.0], [1.0, None, math.nan]])


GROUPS = st.lists(REWARDS, max_size=5)

OVER_GROUPS_TABLE = [
    # Rewards 1, 2, 3 and 6: mean 3, squares 14, population variance 14 / 4, deviation 1.870828693.
    (reinforce_plus_plus, [-1.069044968, -0.534522484, 0, 1.603567451]),
    # Means of the groups 3/2 and 9/2: deviations -1/2 1/2 -3/2 3/2, squares 1/2 + 9/2 = 5, population variance 5 / 4.
    (reinforce_plus_plus_baseline, [-0.447213595, 0.447213595, -1.341640786, 1.341640786]),
    # The same deviations over the sample deviation of the rewards, sqrt(14 / 3) = 2.160246899, and 0.0001.
    (grpo_batch, [-0.231444311, 0.231444311, -0.694332934, 0.694332934]),
]


@pytest.mark.parametrize(("advantage", "expected"), OVER_GROUPS_TABLE)
def test_the_table_over_groups(advantage, expected):
    first, second = advantage([[1, 2], [3, None, 6]])
    np.testing.assert_allclose([*first, *second[[0, 2]]], expected, rtol=1e-8)
    assert np.isnan(second[1])


@pytest.mark.parametrize("named", ADVANTAGES_OVER_GROUPS.values(), ids=ADVANTAGES_OVER_GROUPS)
@given(GROUPS)
def test_over_groups_whoever_has_a_reward_has_a_finite_advantage_in_any_order(named, groups):
    found = named.formula(groups)
    assert [[not math.isnan(value) for value in of_group] for of_group in found] == [
        [reward is not None for reward in rewards] for rewards in groups
    ]
    for one, other in zip(named.formula(groups[::-1])[::-1], found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("named", ADVANTAGES_OVER_GROUPS.values(), ids=ADVANTAGES_OVER_GROUPS)
@pytest.mark.parametrize("groups", [[], [[]], [[0.7]], [[0.1, 0.1], [0.1, 0.1, 0.1]], [[None], [3.0]]])
def test_over_groups_equal_rewards_are_exactly_zero(named, groups):
    values = [value for of_group in named.formula(groups) for value in of_group if not math.isnan(value)]
    assert values == [0.0] * len(values)


@given(GROUPS)
def test_whitened_advantages_have_mean_zero_and_deviation_one(groups):
    rewards = [reward for rewards in groups for reward in rewards if reward is not None]
    assume(len(rewards) > 1 and np.std(rewards) > 0.1)
    found = np.concatenate(reinforce_plus_plus(groups))
    assert np.nanmean(found) == pytest.approx(0, abs=1e-9)
    assert np.nanstd(found) == pytest.approx(1, abs=1e-5)


@settings(laws, max_examples=examples(100))
@given(
    st.lists(st.lists(st.none() | st.floats(-1e37, 1e37), min_size=1, max_size=9), min_size=1, max_size=9), st.data()
)
def test_all_groups_at_once_are_compared_as_each_alone(few, data):
    groups = [few[data.draw(st.integers(0, len(few) - 1))] for _ in range(80)] if data.draw(st.booleans()) else few
    values = [np.array([math.nan if one is None else one for one in group]) for group in groups]
    owners = np.repeat(np.arange(len(groups)), list(map(len, groups)))
    joined = GroupedRewards(np.concatenate(values), owners, len(groups))
    for name, formula in FORMULAS.items():
        alone = ADVANTAGES.get(name)
        expected = ADVANTAGES_OVER_GROUPS[name].formula(groups) if alone is None else map(alone, groups)
        np.testing.assert_array_equal(formula(joined), np.concatenate(list(expected)), name)


def test_sums_are_rounded_once():
    groups = [[1e16, 1.0, -1e16, 1e-30 * number] for number in range(100)]
    joined = GroupedRewards(np.concatenate(groups), np.repeat(np.arange(100), 4), 100)
    expected = [one - math.fsum(group) / 4 for group in groups for one in group]
    np.testing.assert_array_equal(FORMULAS["centered"](joined), expected)
