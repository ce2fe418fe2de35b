"""Preference pairs: the better one of a group against a worse one that had the same prompt, each on its own side."""

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import get_args

import pytest
from hypothesis import event
from hypothesis import given as for_all
from hypothesis import strategies as st

import art_otel
import art_otel.data
from art_otel.data.preferences import Member, Pairs, pair_up, preference_batches
from art_otel.errors import StoreError, UsageError
from art_otel.store import FileLimits, write_trajectories
from art_otel.trajectories import histories
from tests.data.rollouts import agent_rollouts, assistant, call, given, rollout, said, user
from tests.gaps import SCRUBBED
from tests.trajectories.agents import agent_calls

PAIRS = get_args(Pairs)


def pairs_of(sources, **options):
    batches = preference_batches(sources, **options)
    found = list(batches.pairs())
    report = batches.report
    assert report.trajectories == report.trajectories_used + report.trajectories_skipped.total()
    assert report.pairs == len(found)
    return found, report


def names(pairs) -> list[tuple[str, str]]:
    return [(pair.chosen_rollout_id, pair.rejected_rollout_id) for pair in pairs]


def test_the_best_against_the_worst():
    rollouts = [said("a", "r-0", 0.5), said("b", "r-1", 0.0), said("c", "r-2", 1.0), said("d", "r-3", 0.25)]
    (pair,), report = pairs_of(rollouts)
    assert pair.prompt == ({"role": "user", "content": "hello"},)
    assert pair.chosen == ({"role": "assistant", "content": "c"},)
    assert pair.rejected == ({"role": "assistant", "content": "b"},)
    assert (pair.chosen_rollout_id, pair.rejected_rollout_id) == ("r-2", "r-1")
    assert (pair.chosen_reward, pair.rejected_reward, pair.group_id) == (1.0, 0.0, "g")
    assert pair.chosen_train == pair.rejected_train == (True,)
    assert report.trajectories_skipped == {"neither best nor worst": 2}
    assert (report.groups, report.trajectories_used) == (1, 2)


def test_other_ways_to_pair():
    rollouts = [said("a", "r-0", 0.5), said("b", "r-1", 0.0), said("c", "r-2", 1.0), said("d", "r-3", 0.5)]
    assert sorted(names(pairs_of(rollouts, pairs="best_each")[0])) == [("r-2", "r-0"), ("r-2", "r-1"), ("r-2", "r-3")]
    found, report = pairs_of(rollouts, pairs="all")
    # r-0 and r-3 are a tie.
    expected = {("r-2", "r-0"), ("r-2", "r-1"), ("r-2", "r-3"), ("r-0", "r-1"), ("r-3", "r-1")}
    assert Counter(names(found)) == Counter(expected)
    assert not report.trajectories_skipped


def test_ties_and_missing_rewards_are_in_no_pair():
    rollouts = [
        said("a", "r-0", 1.0),
        said("b", "r-1", 1.0),
        said("c", "r-2", None),
        said("d", "r-3", 1.0, group="alone"),
        said("e", "r-4", 1.0, group=None),
        said("f", "r-5", float("nan")),
        said("g", "r-6", 0.0, status="error"),
    ]
    found, report = pairs_of(rollouts)
    assert not found
    assert report.trajectories_skipped == {
        "equal rewards in its group": 2,
        "no reward": 2,
        "alone in its group": 1,
        "no group": 1,
        "status": 1,
    }


def test_what_has_no_conversation_is_counted():
    rollouts = [
        rollout([call(0, None, assistant("a"))], "r-0", group_id="g", reward=1.0),
        rollout([call(0, [user("a")], assistant("b"), gaps=(SCRUBBED,))], "r-1", group_id="g", reward=0.0),
        rollout([], "r-2", group_id="g", reward=0.0),
    ]
    _, report = pairs_of(rollouts)
    assert report.trajectories_skipped == {"messages unknown": 1, "nothing trained": 1, "nothing sampled": 1}


def test_a_named_reward():
    rollouts = [
        said("a", "r-0", 1.0, rewards=(given("helpful", 0.1),)),
        said("b", "r-1", 0.0, rewards=(given("helpful", 0.9),)),
    ]
    assert names(pairs_of(rollouts)[0]) == [("r-0", "r-1")]
    assert names(pairs_of(rollouts, reward="helpful")[0]) == [("r-1", "r-0")]
    assert not pairs_of(rollouts, reward="harmless")[0]


def test_one_task_in_two_training_steps_is_two_groups():
    rollouts = [
        said(str(reward), f"r-{reward}", reward, training_step=step)
        for step, reward in ((0, 0.0), (0, 0.5), (1, 0.6), (1, 1.0))
    ]
    found, report = pairs_of(rollouts)
    assert names(found) == [("r-0.5", "r-0.0"), ("r-1.0", "r-0.6")]
    assert report.groups == 2


def test_batches_and_epochs():
    rollouts = [said(str(n), f"r-{n}", n, group=f"g-{n % 5}") for n in range(10)]
    batches = preference_batches(rollouts, batch_size=2)
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert list(chain.from_iterable(batches)) == list(batches.pairs())


def test_impossible_options():
    with pytest.raises(UsageError, match="batch_size"):
        preference_batches([], batch_size=0)
    with pytest.raises(UsageError, match="pairs='some': use one of best_worst, best_each, all"):
        preference_batches([], pairs="some")
    with pytest.raises(UsageError, match="use one of ok, error"):
        preference_batches([], status=["well"])


@pytest.mark.long
def test_files_give_what_memory_gives(tmp_path):
    rollouts = [said(str(n), f"r-{n:02}", n % 7, group=f"g-{n % 4}") for n in range(40)]
    write_trajectories(rollouts, tmp_path / "out", limits=FileLimits(group_rows=3))
    for pairs in PAIRS:
        assert pairs_of(tmp_path / "out", pairs=pairs) == pairs_of(rollouts, pairs=pairs)
    assert len(list(art_otel.data.preference_batches(tmp_path / "out"))) == 1


def test_a_file_that_changes_in_between_is_an_error(tmp_path):
    rollouts = [said(str(n), f"r-{n}", n, group=f"g-{n % 2}") for n in range(4)]
    write_trajectories(rollouts, tmp_path / "out", limits=FileLimits(group_rows=1))
    pairs = preference_batches(tmp_path / "out").pairs()
    next(pairs)
    changed = [replace(one, reward=one.reward + 1) for one in rollouts]
    write_trajectories(changed, tmp_path / "out", limits=FileLimits(group_rows=1))
    with pytest.raises(StoreError, match="while it was read"):
        list(pairs)


def test_a_reward_function_is_asked_once_for_each_trajectory():
    """So one that answers otherwise each time changes no pair after it was made."""
    numbers = iter(range(4))
    rollouts = [said(str(n), f"r-{n}", None) for n in range(4)]
    (pair,) = preference_batches(rollouts, reward=lambda _: next(numbers)).pairs()
    assert (pair.chosen_rollout_id, pair.chosen_reward) == ("r-3", 3.0)
    assert (pair.rejected_rollout_id, pair.rejected_reward) == ("r-0", 0.0)


MEMBERS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"p", b"q"])), max_size=8).map(
    lambda drawn: [Member(number, (None, "g"), float(reward), prompt) for number, (reward, prompt) in enumerate(drawn)]
)


@for_all(MEMBERS, st.sampled_from(PAIRS))
def test_every_member_is_paired_or_counted(members, pairs):
    pairing = pair_up(members, pairs)
    paired = {member.number for pair in pairing.pairs for member in pair}
    assert len(paired) + pairing.skipped.total() == len(members)
    assert len(set(pairing.pairs)) == len(pairing.pairs)
    for chosen, rejected in pairing.pairs:
        assert chosen.reward > rejected.reward
        assert chosen.prompt == rejected.prompt
    comparable = sum(one.reward > other.reward and one.prompt == other.prompt for one in members for other in members)
    assert bool(pairing.pairs) == bool(comparable)
    if pairs == "all":
        assert len(pairing.pairs) == comparable


@st.composite
def beginnings(draw) -> list[art_otel.Trajectory]:
    """Rollouts of the first calls of one agent, which were asked the same."""
    calls = draw(agent_calls())
    sizes = draw(st.lists(st.integers(1, len(calls)), min_size=2, max_size=3))
    return [
        rollout(calls[:size], f"r-{number}", group_id="g", reward=float(number)) for number, size in enumerate(sizes)
    ]


@pytest.mark.long
@for_all(agent_rollouts() | beginnings(), st.sampled_from(PAIRS))
def test_every_response_is_on_its_own_trajectory(rollouts, pairs):
    """Prompt and response together are a history of the rollout that is named, with its own reward."""
    by_id = {one.rollout_id: one for one in rollouts}
    found, _ = pairs_of(rollouts, pairs=pairs, allow_incomplete=True)
    event(f"{len(found)} pairs")
    for pair in found:
        assert pair.chosen_reward > pair.rejected_reward
        sides = (
            (pair.chosen, pair.chosen_train, pair.chosen_rollout_id, pair.chosen_reward),
            (pair.rejected, pair.rejected_train, pair.rejected_rollout_id, pair.rejected_reward),
        )
        for response, train, rollout_id, reward in sides:
            trajectory = by_id[rollout_id]
            assert (trajectory.reward, trajectory.group_id) == (reward, pair.group_id)
            roles = [message["role"] for message in (*pair.prompt, *response)]
            texts = [message["content"] for message in (*pair.prompt, *response)]
            paths = [one.messages for one in histories(trajectory) if one.messages is not None]
            assert (roles, texts) in [
                ([one.message.role for one in path], [one.message.content for one in path]) for path in paths
            ]
            assert response[0]["role"] == "assistant"
            assert len(train) == len(response)
