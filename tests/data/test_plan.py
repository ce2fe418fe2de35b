"""Plan: an advantage is the table's, wherever the members of a group stand, and bad rewards cost nobody else."""

import math
from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import art_otel
from art_otel.data import (
    ADVANTAGES,
    Credit,
    OverGroups,
    call_reward,
    discounted,
    reinforce,
    reward_function,
    step_reward,
    weighted,
)
from art_otel.errors import UsageError
from art_otel.trajectories import TrajectoryGroup
from tests.data.rollouts import rollout
from tests.data.token_rollouts import judged, pieces, rollouts, stored, talk
from tests.examples import examples
from tests.trajectories.calls import call, choice


def advantages(sources, **options):
    """By rollout, that of each completion in its order; and the report."""
    made = art_otel.batches(sources, **options)
    found = defaultdict(list)
    for batch in made:
        pieces(batch)
        for row, rollout_id in enumerate(batch.rollout_ids):
            trained = batch.advantages[row][batch.loss_mask[row]]
            changes = np.flatnonzero(np.diff(batch.position_ids[row][batch.loss_mask[row]]) > 1) + 1
            found[rollout_id] += [part.tolist() for part in np.split(trained, changes)]
    return {name: [set(part) for part in parts] for name, parts in found.items()}, made.report


def group(*rewards, name="g", size=2, **fields):
    return [
        talk(f"{name}-{number}", size, group_id=name, reward=reward, **fields) for number, reward in enumerate(rewards)
    ]


def spread(found):
    """In files: other groups' members between them, in row groups and files of their own."""
    others = [talk(f"{one.rollout_id}-other", 1, group_id=f"o{number}", reward=9.0) for number, one in enumerate(found)]
    return stored([*found, *others], rows=1)


# Rewards 1, 2, 3, 6: mean 3, deviations -2 -1 0 3, their squares 14; population std 1.870828693, sample 2.160246899.
TABLE = [
    ("centered", [-2, -1, 0, 3]),
    ("dr_grpo", [-2, -1, 0, 3]),
    ("grpo", [-1.069044968, -0.534522484, 0, 1.603567451]),
    ("grpo_sample", [-0.925820100, -0.462910050, 0, 1.388730150]),
    ("rloo", [-8 / 3, -4 / 3, 0, 4]),
    (partial(reinforce, baseline=2), [-1, 0, 1, 4]),
    (lambda rewards: [2 * reward for reward in rewards], [2, 4, 6, 12]),
]


@pytest.mark.parametrize(("advantage", "expected"), TABLE)
def test_the_table_over_files_and_row_groups(advantage, expected):
    with spread(group(1.0, 2.0, 3.0, 6.0)) as folder:
        found, _ = advantages(folder, advantage=advantage, credit=reward_function(lambda one: one.reward))
    for number, value in enumerate(expected):
        assert [*found[f"g-{number}"][0]] == pytest.approx([value], rel=1e-5)


def test_who_has_no_reward_is_left_out_and_in_no_baseline():
    found, report = advantages(group(1.0, None, 3.0), advantage="centered")
    assert found == {"g-0": [{-1.0}], "g-2": [{1.0}]}
    assert report.trajectories_skipped == report.completions_skipped == {"no reward": 1}
    assert report.unusable_rewards == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e37, -1e200, 10**400])
def test_a_reward_that_is_no_usable_number_costs_nobody_else(bad):
    found, report = advantages(group(1.0, bad, 3.0), advantage="centered")
    assert found == {"g-0": [{-1.0}], "g-2": [{1.0}]}
    assert report.completions_skipped == {"unusable reward": 1}


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e37])
def test_without_advantages_a_reward_may_be_missing_but_not_unusable(bad):
    batches = art_otel.batches(group(1.0, bad, None), advantage=None)
    assert [one.rollout_id for one in batches.sequences()] == ["g-0", "g-2"]
    assert batches.report.completions_skipped == {"unusable reward": 1}


def test_rollouts_with_unusable_rewards_are_named():
    _, report = advantages(group(*[math.inf] * 120, 1.0))
    assert report.completions_skipped == {"unusable reward": 120}
    assert report.unusable_rewards == [f"g-{number}" for number in range(100)]


def test_the_largest_usable_rewards_make_finite_advantages():
    largest = math.nextafter(1e37, 0)
    for advantage in ADVANTAGES:
        found, _ = advantages(group(largest, -largest, largest), advantage=advantage)
        assert all(math.isfinite(value) for parts in found.values() for value in parts[0])


def test_members_that_are_refused_are_in_no_baseline():
    members = [*group(1.0, 3.0), talk("g-9", 1, group_id="g", reward=100.0, status="error")]
    found, report = advantages(members, advantage="centered")
    assert found == {"g-0": [{-1.0}], "g-1": [{1.0}]}
    assert report.trajectories_skipped == {"status": 1}
    everybody, _ = advantages(members, advantage="dr_grpo", status=("ok", "error"))
    assert everybody["g-0"] == [{np.float32(1.0 - 104 / 3)}]


def test_without_a_group_everybody_is_alone():
    found, _ = advantages([talk("a", 1, reward=1.0), talk("b", 1, reward=3.0)], advantage="grpo")
    assert found == {"a": [{0.0}], "b": [{0.0}]}
    # One group's name is no name for who has none.
    found, _ = advantages([talk("a", 1, reward=1.0), talk("b", 1, reward=3.0, group_id="")], advantage="grpo")
    assert found == {"a": [{0.0}], "b": [{0.0}]}


def test_groups_without_variance_can_be_left_out():
    members = [*group(1.0, 1.0, None), *group(1.0, 2.0, name="h"), *group(5.0, name="i"), talk("j", 1, reward=1.0)]
    found, report = advantages(members, advantage="centered", zero_variance="drop")
    assert found == {"h-0": [{-0.5}], "h-1": [{0.5}]}
    assert report.completions_skipped == {"zero variance": 4, "no reward": 1}
    kept, report = advantages(members, advantage="centered")
    assert kept["g-0"] == kept["g-1"] == kept["i-0"] == kept["j"] == [{0.0}]
    assert report.completions_skipped == {"no reward": 1}
    # Rewards tell, and not the advantages that somebody makes of them.
    found, _ = advantages(members, advantage=partial(reinforce, baseline=0.0), zero_variance="drop")
    assert set(found) == {"h-0", "h-1"}
    without = art_otel.batches(members, advantage=None, zero_variance="drop")
    assert [name for batch in without for name in batch.rollout_ids] == ["g-2", "h-0", "h-1"]


def stepped(name, *rewards, steps):
    given = tuple(judged(value, step=step) for step, value in enumerate(rewards))
    return talk(name, *[1] * len(steps), steps=steps, rewards=given, group_id="g")


def test_steps_are_compared_with_the_same_step():
    members = [stepped("a", 1.0, 2.0, steps=(0, 0, 1)), stepped("b", 3.0, 6.0, 5.0, steps=(0, 1, 2))]
    with spread(members) as folder:
        found, report = advantages(folder, credit=step_reward(), advantage="centered", batch_size=1)
    # Step 0: 1 and 3, mean 2. Step 1: 2 and 6, mean 4. Step 2: alone.
    assert found == {"a": [{-1.0}, {-1.0}, {-2.0}], "b": [{1.0}, {2.0}, {0.0}]}
    assert report.completions_skipped == {"no reward": 2}  # the others' rollouts, which have no steps


def test_discounted_returns_are_compared_step_by_step():
    # Returns with gamma 1/2: of a 1 + 2/2 = 2 and 2, of b 0 + 6/2 = 3 and 6.
    members = [stepped("a", 1.0, 2.0, steps=(0, 1)), stepped("b", 0.0, 6.0, steps=(0, 1))]
    found, _ = advantages(members, credit=discounted(0.5), advantage="centered")
    assert found == {"a": [{-0.5}, {-2.0}], "b": [{0.5}, {2.0}]}


def test_a_step_index_may_be_any_integer():
    wide = [2**63 - 1, -(2**63)]
    members = [
        talk(name, 1, 1, steps=wide, rewards=tuple(judged(value, step=step) for step in wide), group_id="g")
        for name, value in (("a", 1.0), ("b", 3.0))
    ]
    found, _ = advantages(members, credit=step_reward(), advantage="centered")
    assert found == {"a": [{-1.0}, {-1.0}], "b": [{1.0}, {1.0}]}


def test_calls_are_compared_with_the_call_at_the_same_place():
    def member(name, *rewards):
        given = tuple(judged(value, call=number) for number, value in enumerate(rewards) if value is not None)
        return talk(name, *[2] * len(rewards), rewards=given, group_id="g")

    members = [member("a", 1.0, None, 3.0), member("b", 3.0, 7.0)]
    found, report = advantages(members, credit=call_reward(), advantage="centered")
    assert found == {"a": [{-1.0}, {0.0}], "b": [{1.0}, {0.0}]}
    assert report.completions_skipped == {"no reward": 1}


def test_choices_of_a_call_are_compared_with_each_other():
    given = (judged(1.0, call=0, choice=0), judged(3.0, call=0, choice=1))
    both = [choice("a", [1]), choice("b", [2])]
    found, _ = advantages(
        rollout([call(0, "q", [0], *both)], "r", rewards=given, group_id="g"),
        credit=call_reward(),
        advantage="centered",
    )
    assert found == {"r": [{-1.0}, {1.0}]}


def test_weighted_rewards_and_corrections():
    def member(name, *values):
        given = tuple(judged(value, reward) for reward, value in values)
        return talk(name, 1, rewards=given, group_id="g")

    members = [
        member("a", ("right", 0.0), ("short", 1.0), ("right", 1.0)),  # corrected: 1 + 0.5
        member("b", ("right", 0.0), ("short", 1.0)),  # 0.5
        member("c", ("right", 1.0)),
    ]
    with spread(members) as folder:
        found, report = advantages(folder, credit=weighted({"right": 1.0, "short": 0.5}), advantage="centered")
    assert found == {"a": [{0.5}], "b": [{-0.5}]}
    assert report.completions_skipped == {"no reward": 4}


def test_groups_in_memory_and_trajectories_of_its_name_are_one():
    one, two = talk("a", 1, reward=1.0), talk("b", 1, reward=3.0, group_id="g")
    found, _ = advantages([TrajectoryGroup(group_id="g", trajectories=[one]), two], advantage="centered")
    assert found == {"a": [{-1.0}], "b": [{1.0}]}


@pytest.mark.parametrize(
    ("advantage", "made"),
    [
        (lambda _: [1.0], "it returned \\[1.0\\]"),
        (lambda rewards: [math.nan] * len(rewards), "it returned \\[nan, nan\\]"),
        (lambda rewards: [1e39] * len(rewards), "it returned \\[1e\\+39, 1e\\+39\\]"),
    ],
)
def test_advantages_that_cannot_be_are_refused_with_their_group(advantage, made):
    with pytest.raises(UsageError, match=f"for the rewards \\[1.0, 2.0\\] of group 'g', {made}"):
        advantages(group(1.0, 2.0), advantage=advantage)
    with pytest.raises(UsageError, match="of group None"):
        advantages(talk("r", 1, reward=1.0), advantage=lambda _: [math.inf])


def test_a_credit_of_another_length_is_refused_with_its_rollout():
    with pytest.raises(UsageError, match=r"for rollout 'r', it returned \(1.0,\); it must return 2 rewards"):
        advantages(talk("r", 1, 1), credit=Credit(per="rollout", rewards=lambda _: (1.0,)))


@pytest.mark.long
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rollouts(8, storable=True), st.sampled_from(sorted(ADVANTAGES)), st.integers(1, 3))
def test_every_token_has_the_advantage_of_its_rollout_in_its_group(found, name, rows):
    options = {"allow_incomplete": True, "status": ("ok", "error"), "split": "*"}
    members = defaultdict(list)
    for one in found:
        usable = one.reward is not None and abs(one.reward) < 1e37
        if one.status in options["status"] and one.turns and usable:
            members[one.group_key if one.group_id is not None else (one.rollout_id,)].append(one)
    expected = {}
    for group_ in members.values():
        values = ADVANTAGES[name]([one.reward for one in group_])
        expected |= {one.rollout_id: np.float32(value) for one, value in zip(group_, values, strict=True)}
    with stored(found, rows) as folder:
        for sources in (found, folder):
            given_out, _ = advantages(sources, advantage=name, **options)
            assert {one: set.union(*parts) for one, parts in given_out.items()} == {
                one: {expected[one]} for one in given_out
            }


def test_groups_of_one_name_in_two_training_steps_are_not_compared():
    one, other = group(1.0, 3.0, training_step=1), group(10.0, 30.0, name="g", training_step=2)
    later = [replace(each, rollout_id=f"later-{each.rollout_id}") for each in other]
    found, _ = advantages([*one, *later], advantage="centered")
    assert found == {"g-0": [{-1.0}], "g-1": [{1.0}], "later-g-0": [{-10.0}], "later-g-1": [{10.0}]}


def test_advantages_over_groups_compare_all_that_is_read():
    members = [
        talk(name, 1, group_id=group_id, reward=reward)
        for name, group_id, reward in (("a", "one", 1.0), ("b", "one", 2.0), ("c", "two", 3.0), ("d", "two", None))
    ]
    found, report = advantages(members, advantage="reinforce_plus_plus")
    # Mean 2, squares 2, population variance 2 / 3, deviation 0.8164965809.
    assert {name: round(min(values), 5) for name, (values,) in found.items()} == {"a": -1.22474, "b": 0.0, "c": 1.22474}
    assert report.completions_skipped == {"no reward": 1}
    with pytest.raises(UsageError, match="for 2 groups, it returned 0"):
        advantages(members, advantage=OverGroups(lambda _: ()))
