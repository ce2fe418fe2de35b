"""Rewards of a choice and of a range of its tokens: what they judge, and what there is not."""

import math
import pickle
from copy import deepcopy
from dataclasses import replace

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from art_otel.calls import Choice, Message, TokenIds
from art_otel.testing import SpanBuilder
from art_otel.trajectories import Reward, SpanGroup, Trajectory, build_trajectories, rollout_traces
from art_otel.trajectories.model import with_rewards
from art_otel.trajectories.rewards import fit_part
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span
from tests.trajectories.reward_spans import evaluation, link_to, rollout


def sampled(index: int, *ids: int) -> Choice:
    message = Message(role="assistant", content=f"choice {index}")
    return Choice(index=index, message=message, finish_reason="stop", token_ids=TokenIds.of(ids))


def judged_part(*, target: str = "call", choices=(), **part):
    """A rollout with a step and a call, and a reward for a part of one of them. Its trajectory and damages."""
    builder = SpanBuilder()
    root = builder.rollout("r")
    first = builder.step(root, 0)
    call = builder.chat(first, (Message(role="user", content="?"),), choices or (sampled(0, 7, 8, 9), sampled(1, 7)))
    given = builder.reward(root, 0.5, target={"call": call, "step": first, "rollout": root}[target])
    (event,) = given.events
    told = {f"art.reward.{name}": value for name, value in part.items()}
    event = msgspec.structs.replace(event, attributes={**event.attributes, **told})
    given = msgspec.structs.replace(given, events=(event,))
    assembly = build_trajectories(SpanGroup(spans=[root, first, call, given]))
    (trajectory,) = assembly.trajectories
    return trajectory, assembly.stats


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"choice": 1}, (1, None, None)),
        ({"token_start": 0, "token_end": 3}, (None, 0, 3)),
        ({"choice": 0, "token_start": 1, "token_end": 2}, (0, 1, 2)),
        ({"choice": 1, "token_start": 0, "token_end": 1}, (1, 0, 1)),
    ],
)
def test_a_choice_and_a_range_of_its_tokens(part, expected):
    trajectory, _ = judged_part(**part)
    (reward,) = trajectory.rewards
    assert (reward.choice, reward.token_start, reward.token_end) == expected
    assert (reward.value, reward.step, reward.target) == (0.5, 0, trajectory.calls[0].span_id)
    assert (trajectory.reward, trajectory.complete) == (None, True)
    (trace,) = rollout_traces(trajectory)
    keys = {
        (1, None, None): "choice 1/reward",
        (None, 0, 3): "choice 0 tokens 0-3/reward",
        (0, 1, 2): "choice 0 tokens 1-2/reward",
        (1, 0, 1): "choice 1 tokens 0-1/reward",
    }
    assert trace.reward_data == {keys[expected]: 0.5}


def test_a_choice_is_named_by_its_index_and_kept_by_its_place():
    trajectory, _ = judged_part(choice=0)
    (reward,) = trajectory.rewards
    call = msgspec.structs.replace(trajectory.calls[0], choices=(sampled(2, 1), sampled(0, 2, 3)))
    assert fit_part(reward, call).choice == 1
    assert fit_part(msgspec.structs.replace(reward, choice=2), call).choice == 0
    by_default = msgspec.structs.replace(reward, choice=None, token_start=1, token_end=2)
    assert (fit_part(by_default, call).choice, fit_part(by_default, call).token_end) == (1, 2)
    whole = msgspec.structs.replace(reward, choice=None)
    assert fit_part(whole, call) is whole


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"choice": 2}, "has no such choice"),
        ({"choice": -1}, "is for a part of a call that does not exist"),
        ({"token_start": 1, "token_end": 4}, "a completion of 3 tokens"),
        ({"choice": 1, "token_start": 1, "token_end": 2}, "a completion of 1 tokens"),
        ({"token_start": 2, "token_end": 2}, "is for a part of a call that does not exist"),
        ({"token_start": 2}, "is for a part of a call that does not exist"),
        ({"target": "step", "choice": 0}, "its target is not a call"),
        ({"target": "rollout", "token_start": 0, "token_end": 1}, "its target is not a call"),
    ],
)
def test_a_part_that_there_is_not_is_quarantined_and_rewards_nothing_else(part, said):
    trajectory, account = judged_part(**part)
    assert (trajectory.rewards, trajectory.reward) == ((), None)
    assert trajectory.incomplete_reasons == {"bad reward": 1}
    (damage,) = account.quarantine
    assert (damage.reason, account.quarantined) == ("bad reward", {"bad reward": 1})
    assert said in damage.detail


def test_a_part_of_a_call_that_is_a_whole_rollout(tmp_path):
    known = {"gen_ai.response.id": "r1"}
    whole = chat_span(
        2, None, ["a"], "b", attributes={**known, "art.reward": 1.0}, events=[evaluation("x", 0.5, **known)]
    )
    told = {"gen_ai.response.id": "r1", "art.reward.token_start": 0, "art.reward.token_end": 1}
    part = make_span(7, trace=2, name="reward part", events=[evaluation("part", 0.25, **told)])
    (trajectory,), report = convert_spans(tmp_path, whole, part)
    found = {reward.name: (reward.value, reward.target, reward.token_end) for reward in trajectory.rewards}
    assert found == {"reward": (1.0, None, None), "x": (0.5, None, None), "part": (0.25, f"{2:016x}", 1)}
    assert (trajectory.reward, report.spans.quarantined) == (1.0, {})


def test_where_the_completion_is_unknown_any_part_of_it_is_kept(tmp_path):
    blind = make_span(2, 1, name="chat m", attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    told = {"art.reward.choice": 3, "art.reward.token_start": 5, "art.reward.token_end": 9}
    part = make_span(7, trace=2, name="reward part", links=link_to(2), attributes={"art.reward": 1.0, **told})
    (trajectory,), report = convert_spans(tmp_path, rollout(), blind, part)
    (reward,) = trajectory.rewards
    assert (reward.choice, reward.token_start, reward.token_end) == (3, 5, 9)
    assert report.spans.quarantined == {}


def test_corrections_of_several_parts_are_all_kept_in_the_order_of_time_and_of_events(tmp_path):
    call = chat_span(2, 1, ["a"], "b", attributes={"gen_ai.response.id": "r1"})
    given = [(3, 0.1, 30), (1, 0.2, 10), (2, 0.3, 20)]
    late = [
        make_span(
            number,
            trace=10 + number,
            name="reward x",
            events=[
                evaluation("x", value, time=time, **{"gen_ai.response.id": "r1", "art.reward.choice": 0}),
                evaluation("x", value, time=time, **{"gen_ai.response.id": "r1"}),
            ],
        )
        for number, value, time in given
    ]
    for order in (late, late[::-1]):
        (trajectory,), _ = convert_spans(tmp_path, rollout(), call, *order)
        assert [(reward.value, reward.choice) for reward in trajectory.rewards] == [
            (value, choice) for value in (0.2, 0.3, 0.1) for choice in (0, None)
        ]


def test_rewards_given_to_a_trajectory_are_those_that_are_read_again():
    trajectory, _ = judged_part(choice=0)
    early = Reward(name="reward", value=0.25, source="reward_span", time_ns=1)
    last = Reward(name="reward", value=0.75, source="reward_span", time_ns=2**62)
    found = with_rewards(trajectory, last, early, last)
    assert found.rewards == (early, *trajectory.rewards, last)
    assert (found.reward, trajectory.reward) == (0.75, None)


def given(value: float, name: str = "reward", **fields: object) -> Reward:
    return Reward(**{"name": name, "value": value, "source": "attribute", "time_ns": int(1000 * value), **fields})


_GIVEN = Trajectory(rollout_id="r", trace_id=32 * "1", rewards=(given(1.0),))


def test_a_given_final_reward_stays_until_another_final_one_is_given():
    trajectory = Trajectory(rollout_id="r", trace_id=32 * "1", reward=1.0)
    assert with_rewards(trajectory, given(0.5, "progress", target="a")).reward == 1.0
    assert with_rewards(trajectory, given(0.5, "style")).reward == 1.0
    assert with_rewards(trajectory, given(0.5)).reward == 0.5
    assert replace(trajectory, rewards=(given(0.5),), name="n").reward == 1.0


@hypothesis.given(
    st.sampled_from([None, 0.75, 1.0]),
    st.lists(
        st.builds(
            given,
            st.sampled_from([0.25, 1.0]),
            st.sampled_from(["reward", "style"]),
            step=st.sampled_from([None, 3]),
            time_ns=st.integers(1, 9) | st.integers(2**62, 2**62 + 9),
        ),
        max_size=4,
        unique_by=lambda one: one.time_ns,
    ),
)
def test_a_copy_s_reward_stays_until_a_later_one_of_its_name_is_given(value, rewards):
    """Whatever its value, where it was written or sent between, and in whatever parts the rewards come."""
    shaped = replace(_GIVEN, reward=value)
    later = sorted(
        (one for one in rewards if one.time_ns >= 2**62 and one.name == "reward" and one.step is None),
        key=lambda one: one.time_ns,
    )
    expected = later[-1].value if later else value
    for copy in (shaped, replace(shaped, name="n"), pickle.loads(pickle.dumps(shaped)), deepcopy(shaped)):
        at_once = with_rewards(copy, *rewards)
        assert at_once.reward == expected
        one_by_one = copy
        for reward in sorted(rewards, key=lambda one: one.time_ns):
            one_by_one = with_rewards(one_by_one, reward)
        assert one_by_one == at_once == with_rewards(at_once, *rewards)
        assert (replace(copy, rewards=tuple(rewards)).reward, copy.reward) == (value, value)


def test_what_a_copy_is_given_counts():
    assert replace(_GIVEN, reward=None).reward is None
    assert replace(_GIVEN, reward=1.0, rewards=(given(0.25),)).reward == 1.0
    assert replace(_GIVEN, rewards=(given(0.25),)).reward == 0.25
    assert replace(replace(_GIVEN, reward=None), rewards=()).reward is None


def test_a_reward_that_follows_from_the_rewards_follows_from_those_of_a_copy():
    first, last = (Reward(name="reward", value=value, source="attribute", time_ns=1) for value in (1.0, 0.0))
    trajectory = Trajectory(rollout_id="r", trace_id=32 * "1", rewards=(first,))
    assert replace(trajectory, rewards=(first, last)).reward == 0.0
    assert replace(trajectory, rewards=()).reward is None
    whole = Trajectory(rollout_id="r", trace_id=32 * "1", rewards=(first,), reward=1)
    assert replace(whole, rewards=(last,)).reward == 0.0
    broken = Reward(name="reward", value=math.nan, source="attribute", time_ns=1)
    assert replace(replace(trajectory, rewards=(broken,)), rewards=(last,)).reward == 0.0
    copied = pickle.loads(pickle.dumps(replace(trajectory, reward=0.5)))
    assert replace(copied, rewards=(last,)).reward == 0.5
    copied = pickle.loads(pickle.dumps(trajectory))
    assert replace(copied, rewards=(last,)).reward == 0.0
