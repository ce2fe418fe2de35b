"""Credit: each rule equals a table worked out by hand; None is never 0."""

import math
import pickle

import pytest
from msgspec import structs

from art_otel.data import ADVANTAGES, call_reward, discounted, outcome_reward, reward_function, step_reward, weighted
from art_otel.trajectories import with_turns
from tests.data.rollouts import rollout
from tests.data.token_rollouts import judged, talk
from tests.trajectories.calls import call, choice


def of(credit, *rewards, steps=(), turns=3, reward=None):
    """What the turns of a conversation get."""
    return credit.rewards(talk("r", *[1] * turns, steps=steps, rewards=rewards, reward=reward))


def test_the_final_reward_is_every_turns():
    assert of(outcome_reward(), reward=0.5) == (0.5, 0.5, 0.5)
    assert of(outcome_reward(), judged(1.0, "other"), judged(1.0, "another")) == (None, None, None)
    assert of(outcome_reward(), turns=0, reward=1.0) == ()


def test_the_final_reward_follows_from_rewards_unless_it_is_given():
    assert of(outcome_reward(), judged(0.0), judged(0.5)) == (0.5, 0.5, 0.5)
    assert of(outcome_reward(), judged(0.25), judged(9.0, call=0), judged(9.0, step=0), turns=1) == (0.25,)
    assert of(outcome_reward(), judged(0.25), reward=1.0, turns=1) == (1.0,)


def test_a_named_reward_of_the_rollout_is_every_turns():
    rewards = [judged(1.0, "correct"), judged(9.0, "correct", call=1), judged(0.25, "correct"), judged(3.0, "other")]
    assert of(outcome_reward("correct"), *rewards, reward=7.0) == (0.25, 0.25, 0.25)
    assert of(outcome_reward("style"), *rewards, reward=7.0) == (None, None, None)
    assert outcome_reward("correct").name != outcome_reward("style").name != outcome_reward().name
    pickle.loads(pickle.dumps(outcome_reward("correct")))


def test_a_function_of_the_trajectory():
    assert of(reward_function(lambda trajectory: len(trajectory.turns) / 2)) == (1.5, 1.5, 1.5)


WEIGHTED = [
    # 1.0 * 1 + 0.5 * -2 = 0
    ([judged(1.0, "a"), judged(-2.0, "b")], 0.0),
    # The correction counts: 1.0 * 3 + 0.5 * -2 = 2
    ([judged(1.0, "a"), judged(-2.0, "b"), judged(3.0, "a")], 2.0),
    ([judged(1.0, "a"), judged(-2.0, "b"), judged(9.0, "c")], 0.0),
    ([judged(1.0, "a")], None),
    ([judged(1.0, "a"), judged(None, "b", label="good")], None),
    # A part's reward is not the whole's.
    ([judged(1.0, "a"), judged(-2.0, "b", call=1)], None),
    ([judged(1.0, "a"), judged(-2.0, "b", step=0)], None),
    ([judged(1.0, "a"), judged(-2.0, "b"), judged(5.0, "b", token_start=0, token_end=1)], 0.0),
]


@pytest.mark.parametrize(("rewards", "expected"), WEIGHTED)
def test_weighted_sums_of_named_rewards(rewards, expected):
    assert of(weighted({"a": 1.0, "b": 0.5}), *rewards) == (expected,) * 3


def test_weighted_sums_that_overflow_are_no_error():
    huge = [judged(1e308, "a"), judged(1e308, "b")]
    assert of(weighted({"a": 1.0, "b": 1.0}), *huge) == (math.inf,) * 3
    infinite = [judged(math.inf, "a"), judged(-math.inf, "b")]
    assert math.isnan(of(weighted({"a": 1.0, "b": 1.0}), *infinite)[0])


STEPS = [
    ([judged(0.25, step=0), judged(0.75, step=1)], (0.25, 0.25, 0.75)),
    # The last one counts; other names, labels and rewards of a call in the step do not.
    ([judged(0.25, step=0), judged(0.5, step=0)], (0.5, 0.5, None)),
    ([judged(0.25, "other", step=0), judged(None, step=1, label="good")], (None, None, None)),
    ([judged(0.25, step=1), judged(9.0, step=1, call=2)], (None, None, 0.25)),
    ([judged(0.25, step=1), judged(9.0, step=1, token_start=0, token_end=1)], (None, None, 0.25)),
    ([judged(1.0)], (None, None, None)),
]


@pytest.mark.parametrize(("rewards", "expected"), STEPS)
def test_step_wise_rewards(rewards, expected):
    assert of(step_reward(), *rewards, steps=(0, 0, 1)) == expected


def test_a_call_outside_of_every_step_has_no_steps_reward():
    assert of(step_reward(), judged(1.0, step=0), steps=(0, None, 0)) == (1.0, None, 1.0)
    assert of(step_reward("progress"), judged(1.0, "progress", step=7), steps=(7,)) == (1.0, None, None)


CALLS = [
    ([judged(0.5, call=0), judged(0.25, call=2)], (0.5, None, 0.25)),
    ([judged(0.5, call=0), judged(0.75, call=0)], (0.75, None, None)),
    ([judged(0.5, call=0, step=3), judged(1.0), judged(2.0, step=0), judged(3.0, "other", call=1)], (0.5, None, None)),
    ([judged(0.5, call=1, token_start=0, token_end=1)], (None, None, None)),
]


@pytest.mark.parametrize(("rewards", "expected"), CALLS)
def test_rewards_of_calls(rewards, expected):
    assert of(call_reward(), *rewards) == expected


def test_a_reward_of_a_choice_goes_before_that_of_its_call():
    sampled = [choice("a", [1]), choice("b", [2]), choice("c", [3])]
    given = (judged(0.5, call=0, choice=1), judged(0.25, call=0), judged(0.75, call=0, choice=1))
    assert call_reward().rewards(rollout([call(0, "q", [0], *sampled)], rewards=given)) == (0.25, 0.75, 0.25)


THREE = [judged(1.0, step=0), judged(2.0, step=1), judged(0.0, step=2)]

# Steps 0, 0, 1 and 3; gamma 1/2.
RETURNS = [
    # Final 8 alone: 8 at step 3, 4 at step 2, which has no call, 2 at step 1, 1 at step 0.
    ([], 8.0, (1.0, 1.0, 2.0, 8.0)),
    # Rewards alone: 4; 0 + 4/2 = 2; 2 + 2/2 = 3; 1 + 3/2 = 2.5.
    ([*THREE, judged(4.0, step=3)], None, (2.5, 2.5, 3.0, 4.0)),
    # With the final 8 in the last step: 12; 0 + 12/2 = 6; 2 + 6/2 = 5; 1 + 5/2 = 3.5.
    ([*THREE, judged(4.0, step=3)], 8.0, (3.5, 3.5, 5.0, 12.0)),
    # Step 1 is unknown, and so is what comes before it.
    ([judged(1.0, step=0), judged(0.0, step=2), judged(4.0, step=3)], None, (None, None, None, 4.0)),
    # So is step 2, of which nothing was recorded.
    ([judged(1.0, step=0), judged(2.0, step=1), judged(4.0, step=3)], None, (None, None, None, 4.0)),
    (THREE, None, (None, None, None, None)),
    ([judged(1.0, step=0), *(judged(0.0, step=step) for step in (1, 2, 3))], None, (1.0, 1.0, 0.0, 0.0)),
    # A step without calls has its reward all the same: 6; 4 + 6/2 = 7; 0 + 7/2 = 3.5; 2 + 3.5/2 = 3.75; 1 + 3.75/2.
    ([*THREE, judged(4.0, step=3), judged(6.0, step=4)], None, (2.875, 2.875, 3.75, 7.0)),
    ([], None, (None, None, None, None)),
]


@pytest.mark.parametrize(("rewards", "reward", "expected"), RETURNS)
def test_discounted_returns(rewards, reward, expected):
    assert of(discounted(0.5), *rewards, steps=(0, 0, 1, 3), turns=4, reward=reward) == expected


def test_discounts_of_none_and_of_all():
    rewards = [judged(1.0, step=0), judged(2.0, step=1)]
    assert of(discounted(0), *rewards, steps=(0, 1), turns=2) == (1.0, 2.0)
    assert of(discounted(1), *rewards, steps=(0, 1), turns=2) == (3.0, 2.0)
    assert of(discounted(1), reward=5.0) == (None, None, None)


def test_steps_may_lie_far_apart():
    far = 2**62
    assert of(discounted(0.5), steps=(0, far), turns=2, reward=1.0) == (0.0, 1.0)
    assert of(discounted(1), judged(1.0, step=far), steps=(0, far), turns=2) == (None, 1.0)


def of_step(value, step, span, name="reward"):
    """What the step span of that id was given."""
    return structs.replace(judged(value, name, step=step), target=span * 16)


def test_of_two_steps_of_one_index_nobody_knows_whose_the_reward_is():
    two = [of_step(1.0, 0, "a"), of_step(-1.0, 0, "b")]
    for credit in (step_reward(), discounted(1)):
        assert of(credit, *two, of_step(0.5, 1, "c"), steps=(0, 0, 1)) == (None, None, 0.5)
    assert of(discounted(1), *two, reward=2.0, steps=(0, 1), turns=2) == (None, None)
    # The other may be known by another reward only.
    assert of(step_reward(), of_step(1.0, 0, "a"), of_step(1.0, 0, "b", "tone"), steps=(0,), turns=1) == (None,)
    # A correction of one step, from elsewhere too, is no second step.
    corrected = [of_step(1.0, 0, "a"), of_step(0.25, 0, "a"), judged(0.5, step=0)]
    assert of(step_reward(), *corrected, steps=(0,), turns=1) == (0.5,)


CREDITS = (outcome_reward(), weighted({"reward": 1.0}), step_reward(), call_reward(), discounted(0.5))


@pytest.mark.parametrize("credit", CREDITS, ids=lambda credit: credit.name)
def test_credits_go_to_other_processes(credit):
    told = talk("r", 1, 1, steps=(0, 1), reward=1.0, rewards=(judged(1.0, step=0), judged(2.0, step=1)))
    again = pickle.loads(pickle.dumps(credit))
    assert (again.per, again.name) == (credit.per, credit.name)
    assert again.rewards(told) == credit.rewards(told)


def test_advantages_by_name_go_to_other_processes():
    for advantage in ADVANTAGES.values():
        assert pickle.loads(pickle.dumps(advantage))([0.0, None, 1.0]) == pytest.approx(
            advantage([0.0, None, 1.0]), nan_ok=True
        )


def test_credit_needs_neither_messages_nor_tokens():
    told = talk("r", 1, 1, steps=(0, 1), reward=1.0, rewards=(judged(1.0, step=0), judged(2.0, step=1)))
    outline = with_turns(told, [structs.replace(turn, message_node=None, token_node=None) for turn in told.turns])
    for credit in CREDITS:
        assert credit.rewards(outline) == credit.rewards(told)
