"""Judged pairs: who was said to be better is chosen, whoever else is in the group."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from msgspec import structs

from art_otel.batches.pairing import PAIRS, Judgement, Member, pair_up
from art_otel.trajectories.rewards.effective import final_reward
from tests.batches.rollouts import assistant, call, chat, given, rollout, said, user
from tests.batches.test_preferences import names, pairs_of

NAMES = "abcd"


def judged(*said_of: tuple[str, str], name: str = "preference") -> dict[str, list]:
    """The rewards of each of four by who was preferred to whom, in this order."""
    found = {one: [] for one in NAMES}
    for time_ns, two in enumerate(said_of):
        for one, value in zip(two, (1.0, -1.0), strict=True):
            made = given(name, value, comparison="".join(sorted(two)))
            found[one].append(structs.replace(made, time_ns=time_ns))
    return found


def group(rewards, *more, **fields):
    return [
        said(one, one, final_reward((*given_to, *more)), rewards=(*given_to, *more), **fields)
        for one, given_to in rewards.items()
    ]


CHAIN = [("a", "b"), ("b", "c"), ("d", "a")]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("reward", [None, "preference"])
def test_the_pairs_are_those_that_were_judged(pairs, reward):
    found, report = pairs_of(group(judged(*CHAIN)), pairs=pairs, reward=reward)
    assert sorted(names(found)) == CHAIN
    assert {(pair.chosen_reward, pair.rejected_reward) for pair in found} == {(1.0, -1.0)}
    assert not report.trajectories_left_out
    # Nobody compared a with d, or c with b.
    found, _ = pairs_of(group(judged(("a", "b"), ("c", "d"))), pairs=pairs, reward=reward)
    assert sorted(names(found)) == [("a", "b"), ("c", "d")]


def test_a_rollout_is_worth_its_wins_minus_its_losses():
    assert [one.reward for one in group(judged(*CHAIN))] == [0.0, 0.0, -1.0, 1.0]
    again = judged(*CHAIN, ("b", "a"))
    assert [one.reward for one in group(again)] == [-1.0, 1.0, -1.0, 1.0]


def test_the_same_two_are_judged_anew_and_circles_stay():
    assert names(pairs_of(group(judged(("a", "b"), ("c", "d"), ("b", "a"))))[0]) == [("b", "a"), ("c", "d")]
    circle = [("a", "b"), ("b", "c"), ("c", "a")]
    assert sorted(names(pairs_of(group(judged(*circle)))[0])) == sorted(circle)


def test_of_two_named_in_two_ways_the_last_judgement_counts():
    first = judged(("a", "b"))
    for one, value in (("b", 1.0), ("a", -1.0)):
        first[one].append(structs.replace(given("preference", value, comparison="by span"), time_ns=5))
    assert names(pairs_of(group(first))[0]) == [("b", "a")]


def test_who_was_judged_is_not_compared_with_who_was_rated():
    rollouts = group(judged(("a", "b"), ("c", "d")))
    rated = [said("e", "e", 0.5), said("f", "f", 0.25), said("g", "g", 0.0)]
    found, report = pairs_of([*rollouts, *rated])
    assert sorted(names(found)) == [("a", "b"), ("c", "d"), ("e", "g")]
    assert report.trajectories_left_out == {"neither best nor worst": 1}


def test_who_was_judged_beside_none_of_the_group_is_counted():
    rollouts = group(judged(("a", "b"), ("c", "d")))
    found, report = pairs_of(rollouts[:3])
    assert names(found) == [("a", "b")]
    assert report.trajectories_left_out == {"judged beside none of its group": 1}


def test_a_correction_by_a_number_is_no_judgement():
    corrected = structs.replace(given("preference", 0.5), time_ns=9)
    found, report = pairs_of(group(judged(*CHAIN), corrected))
    assert not found
    assert report.trajectories_left_out == {"equal rewards in its group": 4}


def test_a_reward_of_ones_own_goes_before_judgements():
    found, _ = pairs_of(group(judged(*CHAIN)), reward=lambda one: NAMES.index(one.rollout_id))
    assert names(found) == [("d", "a")]


def test_judged_calls_count_where_the_conversation_ends_with_them():
    def talked(name, number, value):
        """Two calls, of which one was judged."""
        calls = chat(user("hello"), assistant("hm"), user("more"), assistant(name))
        mark = given("tone", value, comparison="ab", target=calls[number].span_id)
        return rollout(calls, name, group_id="g", rewards=(mark,))

    for reward in ("tone", None):
        found, _ = pairs_of([talked("a", 1, -1.0), talked("b", 1, 1.0)], reward=reward)
        assert names(found) == [("b", "a")]
    found, report = pairs_of([talked("a", 0, -1.0), talked("b", 1, 1.0)], reward="tone")
    assert not found
    assert report.trajectories_left_out == {"no reward": 1, "alone in its group": 1}


def test_a_judged_choice_counts_where_it_is_the_one_compared():
    def sampled(name, choice, value):
        calls = [call(0, [user("hello")], assistant(name), assistant("other"))]
        mark = given("tone", value, comparison="ab", target=calls[0].span_id, choice=choice)
        return rollout(calls, name, group_id="g", rewards=(mark,))

    assert names(pairs_of([sampled("a", 0, 1.0), sampled("b", 0, -1.0)], reward="tone")[0]) == [("a", "b")]
    assert not pairs_of([sampled("a", 1, 1.0), sampled("b", 0, -1.0)], reward="tone")[0]


def test_only_equal_prompts_make_a_judged_pair():
    rewards = judged(("a", "b"))
    other = rollout(chat(user("bonjour"), assistant("b")), "b", group_id="g", reward=-1.0, rewards=tuple(rewards["b"]))
    found, report = pairs_of([group(rewards)[0], other])
    assert not found
    assert report.trajectories_left_out == {"judged beside none of its group": 2}


TOURNAMENTS = st.lists(st.permutations(range(5)).map(lambda order: order[:2]), max_size=12)


@for_all(TOURNAMENTS, st.sampled_from(PAIRS))
def test_each_two_are_paired_as_they_were_judged_last(told, pairs):
    last = {frozenset(two): tuple(two) for two in told}
    kept: dict[int, dict[str, Judgement]] = {number: {} for number in range(5)}
    for time_ns, two in enumerate(told):
        for one, value in zip(two, (1.0, -1.0), strict=True):
            comparison = str(sorted(two))
            kept[one][comparison] = Judgement(comparison, value, time_ns)
    members = [Member(number, 0.0, b"p", tuple(found.values())) for number, found in kept.items() if found]
    pairing = pair_up(members, pairs)
    assert {(pair.chosen.number, pair.rejected.number) for pair in pairing.pairs} == set(last.values())
    assert len(pairing.pairs) == len(last)
    assert not pairing.left_out
