"""score_group(), rank_group(): each response keeps what it is worth, in whatever order judges answer."""

import asyncio
import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel import gather_trajectory_groups, rank_group, reward, rollout, score_group
from art_otel.data import message_batches
from art_otel.errors import UsageError
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, Trajectory, TrajectoryGroup, build_trajectories, with_later_rewards
from tests.examples import examples


def agent_of(app):
    @rollout(name="agent")
    async def agent(number: int) -> int:
        await app.ask_later("the same question", f"answer {number}", response_id=f"r-{number}")
        return number

    return agent


def group_of(app, count: int) -> TrajectoryGroup:
    agent = agent_of(app)
    (group,) = asyncio.run(gather_trajectory_groups({"task": [agent(number) for number in range(count)]}))
    return group


def answer(trajectory: Trajectory) -> int:
    """The number that the trajectory's response holds."""
    (call,) = trajectory.calls
    return int(call.choices[0].message.content.removeprefix("answer "))


def test_each_is_given_its_own(app):
    group = group_of(app, 5)

    def judge(trajectories):
        return [None if answer(one) == 3 else answer(one) / 8 for one in trajectories]

    judged = score_group(group, judge)
    assert [(answer(one), one.result, one.reward) for one in judged] == [
        (number, number, None if number == 3 else number / 8) for number in range(5)
    ]
    stored, _ = app.convert()
    assert {one.rollout_id: one for one in stored} == {one.rollout_id: one for one in judged}
    assert all(one.complete for one in stored)


def test_the_given_group_is_learned_from_with_its_rewards_and_a_copy_with_those_that_it_got_later(app):
    group = group_of(app, 3)
    judged = score_group(group, lambda trajectories: [answer(one) / 8 for one in trajectories])
    styled = score_group([replace(one, reward=0.5) for one in judged], lambda _: [1.0] * 3, name="style")

    def learned(source) -> list[float]:
        return sorted(example.reward for example in message_batches(source).examples())

    assert [one.reward for one in group] == [None] * 3
    assert learned(group) == learned(judged) == [0.0, 0.125, 0.25]
    assert learned(styled) == learned([replace(one, reward=0.5) for one in group]) == [0.5] * 3
    score_group(styled, lambda _: [1.0] * 3)
    assert learned(group) == learned(judged) == learned(styled) == [1.0] * 3
    stored, _ = app.convert()
    given = {one.rollout_id: with_later_rewards(one).rewards for one in group}
    assert {one.rollout_id: one.rewards for one in stored} == given


def test_calls_of_a_judge_are_not_the_policy_s(app):
    group = group_of(app, 2)

    def judge(trajectories):
        app.ask("which is better?")
        return [1.0] * len(trajectories)

    async def compare(first, second):  # noqa: ARG001 # whichever they are
        await app.ask_later("is the first better?")

    score_group(group, judge)

    async def rank():
        await rank_group(group, compare)

    asyncio.run(rank())
    stored, _ = app.convert()
    asked = {call.input_messages[0].content: call.marked_untrained for one in stored for call in one.calls}
    assert asked == {"the same question": None, "which is better?": "judge", "is the first better?": "judge"}


def test_a_later_judge_corrects_an_earlier_one_and_both_are_kept(app):
    first = score_group(group_of(app, 2), lambda trajectories: [0.25] * len(trajectories))
    second = score_group(first, lambda _: [0.75, None])
    third = score_group(second, lambda trajectories: [1.0] * len(trajectories), name="style")
    assert [[given.value for given in one.rewards] for one in third] == [[0.25, 0.75, 1.0], [0.25, 1.0]]
    assert [one.reward for one in third] == [0.75, 0.25]
    stored, _ = app.convert()
    assert sorted(stored, key=answer) == third


def test_an_async_judge_is_awaited(app):
    async def judge(trajectories):
        await asyncio.sleep(0)
        return tuple(float(answer(one)) for one in reversed(trajectories))

    async def run():
        return await score_group(list(reversed((await gather()).trajectories)), judge)

    async def gather():
        agent = agent_of(app)
        (group,) = await gather_trajectory_groups([[agent(number) for number in range(3)]])
        return group

    assert [(answer(one), one.reward) for one in asyncio.run(run())] == [(2, 0.0), (1, 1.0), (0, 2.0)]


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0]])
def test_another_number_of_rewards_gives_none(app, values):
    group = group_of(app, 2)
    with pytest.raises(UsageError, match=f"returned {len(values)} rewards for 2 trajectories"):
        score_group(group, lambda _: values)
    assert [one.rewards for one in app.convert()[0]] == [(), ()]


def test_a_judge_that_raises_gives_none(app):
    group = group_of(app, 2)

    async def judge(_):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(score_group(group, judge))
    assert [one.rewards for one in app.convert()[0]] == [(), ()]


def test_what_is_no_number_is_refused(app, caplog):
    found = score_group(group_of(app, 3), lambda _: [math.nan, 0.5, math.inf])
    assert [one.reward for one in found] == [None, 0.5, None]
    assert "must be a finite number" in caplog.text
    stored, _ = app.convert()
    assert sorted((one.reward or 0.0) for one in stored) == [0.0, 0.0, 0.5]


def test_what_one_reward_could_not_tell_apart_is_refused(app):
    one, two = group_of(app, 2).trajectories
    with pytest.raises(UsageError, match="2 times"):
        score_group([one, two, one], lambda _: [1.0, 2.0, 3.0])
    assert [found.rewards for found in app.convert()[0]] == [(), ()]


def attempts(*numbers: int):
    """The spans of several attempts of one rollout, each a trace of its own."""
    for number in numbers:
        builder = SpanBuilder(trace=number)
        yield builder.rollout("same", attributes={"art.rollout.attempt": number})


def test_attempts_of_one_rollout_are_told_apart(app):
    spans = list(attempts(1, 2, 3))
    trajectories = build_trajectories(SpanGroup(spans=spans)).trajectories
    judged = score_group(trajectories, lambda found: [one.attempt / 4 for one in found])
    assert [one.reward for one in judged] == [0.25, 0.5, 0.75]
    app.processor.shutdown()
    (spool,) = (app.folder / "spool").iterdir()
    assert spool.read_text().count("art.rollout.attempt") == 3
    with pytest.raises(UsageError, match="attempt 2 is in the group 2 times"):
        score_group([*trajectories, trajectories[1]], lambda _: [])


def test_wins_minus_losses_of_all_pairs(app):
    compared = []

    def compare(one, other):
        compared.append((answer(one), answer(other)))
        return None if 3 in compared[-1] else (answer(one) > answer(other)) - (answer(one) < answer(other))

    found = rank_group(group_of(app, 4), compare)
    assert Counter(compared) == Counter((one, other) for one in range(4) for other in range(4) if one != other)
    assert [(answer(one), one.reward) for one in found] == [(0, -1.0), (1, 0.0), (2, 1.0), (3, None)]
    stored, _ = app.convert()
    assert sorted(stored, key=answer) == found


def test_a_judge_who_likes_the_first_favours_nobody_both_ways(app):
    group = group_of(app, 3)
    assert [one.reward for one in rank_group(group, lambda *_: 1.0)] == [0.0, 0.0, 0.0]
    once = rank_group(group, lambda *_: 1.0, name="order", both_ways=False)
    assert [one.rewards[-1].value for one in once] == [1.0, 0.0, -1.0]


def test_comparisons_run_at_once_and_land_where_they_belong(app):
    running = most = 0

    async def compare(one, other):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(random.randrange(1, 5)):
            await asyncio.sleep(0)
        running -= 1
        return 1.0 if answer(one) < answer(other) else -1.0

    group = list(group_of(app, 6).trajectories)
    random.shuffle(group)
    found = asyncio.run(wait_for(rank_group(group, compare)))
    assert most == 30
    assert {answer(one): one.reward for one in found} == {
        number: pytest.approx((5 - 2 * number) / 5) for number in range(6)
    }


async def wait_for(awaitable):
    return await awaitable


def test_a_comparison_that_raises_stops_the_others(app):
    stopped = []

    async def compare(one, other):
        if (answer(one), answer(other)) == (0, 1):
            raise ValueError("broken")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(one)
            raise

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(wait_for(rank_group(group_of(app, 3), compare)))
    assert len(stopped) == 5
    assert all(one.rewards == () for one in app.convert()[0])


@pytest.mark.parametrize("count", [0, 1])
def test_with_nobody_to_compare_with_there_is_no_reward(app, count):
    async def compare(*_):
        return 1.0

    group = group_of(app, 1).trajectories[:count]
    assert [one.reward for one in rank_group(group, lambda *_: 1.0)] == [None] * count
    assert [one.reward for one in asyncio.run(wait_for(rank_group(group, compare)))] == [None] * count


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, None]), min_size=5, max_size=5), min_size=5, max_size=5
    )
)
def test_what_one_wins_another_loses(table):
    trajectories = [Trajectory(rollout_id=str(number), trace_id="ab" * 16) for number in range(5)]
    judged = rank_group(trajectories, lambda one, other: table[int(one.rollout_id)][int(other.rollout_id)])
    total = 0.0
    for number, one in enumerate(judged):
        played = [
            value for other in range(5) if other != number for value in (table[number][other], table[other][number])
        ]
        known = sum(value is not None for value in played)
        assert (one.reward is None) == (known == 0)
        assert one.reward is None or -1.0 <= one.reward <= 1.0
        total += (one.reward or 0.0) * known
    assert total == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("nothing_set_up")
def test_without_set_up_the_trajectories_have_their_rewards():
    group = [Trajectory(rollout_id=name, trace_id="ab" * 16) for name in "ab"]
    judged = score_group(TrajectoryGroup(group_id="g", trajectories=group), lambda _: [0.5, None])
    assert [one.reward for one in judged] == [0.5, None]
    reward(1.0, target=group[0])


@pytest.mark.usefixtures("nothing_set_up")
def test_rewards_of_what_was_gathered_without_a_set_up_are_in_the_trajectories_and_nothing_is_said(caplog):
    @rollout(name="agent")
    async def agent(number: int) -> int:
        return number

    (group,) = asyncio.run(gather_trajectory_groups({"a": [agent(1), agent(2)]}))
    assert [one.reward for one in score_group(group, lambda _: [1.0, 0.0])] == [1.0, 0.0]
    assert [one.reward for one in rank_group(group, lambda _, __: 1.0, both_ways=False)] == [1.0, -1.0]
    assert caplog.messages == []
