"""Trajectory lines: histories, choices and groups, and a reason for all that ART has no place for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Logprobs, TokenIds, ToolCall
from art_otel.exporting import ExportStats, export
from art_otel.testing import trajectories
from art_otel.trajectories import PolicyVersions, histories
from art_otel_art import EXPORTER
from art_otel_art.groups import ArtTrajectoriesConfig, encode_trajectories
from tests.data.rollouts import agent_rollouts, assistant, call, rollout, user
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.exported import rewarded
from tests.exporting.samples import LOOK_UP, conversation, failed, samples, without_ids


def encoded(*rollouts, rewards=None, **config) -> tuple[list[dict], ExportStats]:
    """The groups; each turn is worth what `rewards` says, or the final reward."""
    items = rewarded(rollouts, rewards or (), view="made tokens")
    groups, stats = encoded_by(encode_trajectories, items, ArtTrajectoriesConfig(**config))
    return [json.loads(json.dumps(group, default=lambda raw: json.loads(bytes(raw)))) for group in groups], stats


def only(*rollouts, **options) -> tuple[dict, ExportStats]:
    ((group,), stats) = encoded(*rollouts, **options)
    (trajectory,) = group["trajectories"]
    return trajectory, stats


def choices_of(trajectory: dict) -> list[dict]:
    items = [trajectory, *trajectory["additional_histories"]]
    return [one for history in items for one in history["messages_and_choices"] if "finish_reason" in one]


@given(st.lists(trajectories(), max_size=3) | agent_rollouts())
def test_every_sampled_message_of_a_known_history_is_a_choice_once(rollouts):
    items = list(rewarded(rollouts, view="made tokens"))
    rollouts = [item.trajectory for item in items]
    groups, stats = encoded(*rollouts)
    written = [one for group in groups for one in group["trajectories"]]
    for trajectory, turn_rewards in ((item.trajectory, item.turn_rewards) for item in items):
        found = [one for one in written if one["metadata"]["art.rollout.id"] == trajectory.rollout_id]
        answered = {
            entry.turn
            for history in histories(trajectory)
            for entry in history.messages or ()
            if entry.turn is not None and entry.message.role == "assistant"
        }
        turns = [trajectory.turns[number] for number in answered if turn_rewards[number].skipped is None]
        # ART trains by ids; a completion without ids is judged by its text.
        untrained = [turn.tokens_untrained if turn.has_tokens else turn.text_untrained for turn in turns]
        if len(found) == 1 and [one.rollout_id for one in rollouts].count(trajectory.rollout_id) == 1:
            assert len(choices_of(found[0])) == untrained.count(None)
    failures = sum(len(group["exceptions"]) for group in groups)
    assert len(written) + failures + stats.trajectories_skipped.total() == len(rollouts)


def test_members_of_a_group_are_one_line_whatever_stands_between():
    rollouts = [
        conversation("a", "1", 1.0),
        conversation("b", "2", 0.0, group_id="h"),
        conversation("c", "3", 0.5, group_id=None),
        conversation("d", "4", 0.0),
        conversation("e", "5", 0.5, group_id=None),
    ]
    groups, _ = encoded(*rollouts)
    ids = [[one["metadata"]["art.rollout.id"] for one in group["trajectories"]] for group in groups]
    assert ids == [["a", "d"], ["b"], ["c"], ["e"]]
    assert [group["metadata"] for group in groups] == [{"art.group.id": "g"}, {"art.group.id": "h"}, {}, {}]


def test_a_group_id_of_two_training_steps_is_two_groups():
    told = [("a", 0), ("b", 1), ("c", 0), ("d", None)]
    groups, _ = encoded(*(conversation(name, name, 1.0, training_step=step) for name, step in told))
    ids = [[one["metadata"]["art.rollout.id"] for one in group["trajectories"]] for group in groups]
    assert ids == [["a", "c"], ["b"], ["d"]]
    assert [group["metadata"] for group in groups] == [{"art.group.id": "g"}] * 3


def test_a_failed_rollout_is_an_exception_of_its_group():
    ((group,), stats) = encoded(conversation("a", "1", 1.0), failed())
    assert group["exceptions"] == [{"type": "error", "message": "ValueError: no rain", "traceback": ""}]
    assert +stats.changed == {"trajectories that ended with an error, written as exceptions of their groups": 1}


@pytest.mark.parametrize(
    ("trajectory", "rewards", "reason"),
    [
        (conversation("a", "1", None), None, "no reward"),
        (conversation("a", "1", 1.0), [0.0, 1.0], "turns with different rewards, but ART has one per trajectory"),
        (conversation("a", "1", 1.0), [None, 1.0], "turns with different rewards, but ART has one per trajectory"),
        (rollout([], reward=1.0), [], "nothing sampled"),
        (rollout([call(0, None, assistant("a"))], reward=1.0), None, "messages unknown"),
        (rollout([call(0, (user("q"),))], reward=1.0), None, "nothing sampled"),
    ],
)
def test_a_trajectory_that_art_cannot_hold_is_left_out_with_the_reason(trajectory, rewards, reason):
    groups, stats = encoded(trajectory, rewards=rewards)
    assert groups == []
    assert stats.trajectories_skipped == {reason: 1}


def test_the_reward_is_that_of_the_credit():
    trajectory, _ = only(conversation("a", "1", 1.0), rewards=[0.25, 0.25])
    assert trajectory["reward"] == 0.25


def test_a_history_that_nobody_recorded_is_counted_and_the_others_stay():
    calls = [call(0, (user("q"),), assistant("a")), call(1, None, assistant("b"))]
    trajectory, stats = only(rollout(calls, reward=1.0))
    assert trajectory["additional_histories"] == []
    assert +stats.skipped == {"histories with messages that were not recorded": 1}


def test_without_ids_a_choice_has_no_logprobs_and_that_is_told():
    trajectory, stats = only(without_ids())
    (choice,) = choices_of(trajectory)
    assert choice["logprobs"] is None
    assert stats.changed["completions without token ids and logprobs, which ART does not train on"] == 1


def test_without_the_ids_of_its_prompt_a_choice_has_none_and_that_is_told():
    asked = call(0, (user("q"),), assistant("a"))
    one = structs.replace(asked.choices[0], token_ids=TokenIds.of([7]), logprobs=Logprobs.of([-0.5]))
    trajectory, stats = only(rollout([structs.replace(asked, choices=(one,))], reward=1.0))
    (choice,) = choices_of(trajectory)
    assert choice["logprobs"] is None
    assert not {"prompt_token_ids", "token_ids"} & choice.keys()
    assert +stats.changed == {"completions without the token ids of their prompt, which ART does not train on": 1}


def test_under_a_grammar_a_choice_has_no_logprobs_and_that_is_told():
    asked = call(0, (user("q"),), assistant("a"), parameters={"tool_choice": "required"})
    one = structs.replace(asked.choices[0], token_ids=TokenIds.of([7]), logprobs=Logprobs.of([0.0]))
    prompted = structs.replace(asked, choices=(one,), prompt_token_ids=TokenIds.of([4]))
    trajectory, stats = only(rollout([prompted], reward=1.0))
    (choice,) = choices_of(trajectory)
    assert choice["logprobs"] is None
    assert sum((+stats.changed).values()) == 1


@pytest.mark.parametrize("logprobs", [[float("nan")], [float("-inf")], [-1.0, -1.0]])
def test_logprobs_that_are_no_numbers_or_too_many_are_none(logprobs):
    asked = call(0, (user("q"),), assistant("a"))
    bad = structs.replace(asked.choices[0], token_ids=TokenIds.of([1]), logprobs=Logprobs.of(logprobs))
    trajectory, _ = only(rollout([structs.replace(asked, choices=(bad,))], reward=1.0))
    assert choices_of(trajectory)[0]["logprobs"] is None


def test_logprobs_are_those_that_were_sampled_exactly():
    asked = call(0, (user("q"),), assistant("a"))
    one = structs.replace(asked.choices[0], token_ids=TokenIds.of([7, 8]), logprobs=Logprobs.of([-0.1, -0.0]))
    prompt = TokenIds.of([4, 5])
    trajectory, _ = only(rollout([structs.replace(asked, choices=(one,), prompt_token_ids=prompt)], reward=1.0))
    (choice,) = choices_of(trajectory)
    content = choice["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["token_id:7", "token_id:8"]
    assert [entry["logprob"] for entry in content] == list(one.logprobs)
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([4, 5], [7, 8])


def test_tool_calls_can_be_left_to_the_sampled_tokens():
    first, last = choices_of(only(conversation("a", "1", 1.0))[0])
    assert first["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Zürich" }'
    trajectory, stats = only(conversation("a", "1", 1.0), tool_calls="drop")
    assert choices_of(trajectory) == [first | {"message": first["message"] | {"tool_calls": None}}, last]
    assert stats.changed["tool calls left out, because the sampled tokens hold them"] == 1


def test_odd_sampled_messages_are_made_what_art_takes():
    look = assistant("see", tool_calls=(ToolCall(name="look", arguments="{}"),), parts='[{"type":"image","url":"u"}]')
    calls = [call(0, (user("q"),), look, finish_reason="odd"), call(1, (user("r"),), user("no assistant"))]
    trajectory, stats = only(rollout(calls, reward=1.0))
    (choice,) = choices_of(trajectory)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "see"
    assert choice["message"]["tool_calls"][0]["id"] == ""
    assert +stats.skipped == {"completions whose role is not assistant": 1}
    assert set(stats.changed) >= {
        "unknown finish reasons written as stop or tool_calls",
        "tool calls without an id, which got an empty one",
        "content of sampled messages other than text, left out",
    }


def test_tools_are_those_of_the_last_call_and_functions():
    others = ({"type": "web_search"}, "x", {"type": "function"})
    calls = [
        call(0, (user("q"),), assistant("a"), tools=(LOOK_UP,)),
        call(1, (user("q"), assistant("a"), user("r")), assistant("b"), tools=(LOOK_UP, *others)),
        call(2, (user("alone"),), assistant("c"), tools=()),
    ]
    trajectory, stats = only(rollout(calls, reward=1.0))
    assert trajectory["tools"] == [LOOK_UP]
    assert trajectory["additional_histories"][0]["tools"] is None
    assert stats.changed["histories whose tools changed, written with the tools of the last call"] == 1
    assert stats.changed["tools that are not functions, left out"] == 3


def test_numbers_that_art_cannot_hold_are_left_out_and_told():
    versions = PolicyVersions(first="7", last="step-8")
    odd = conversation("a", "1", 1.0, metrics={"a": 1.0, "b": float("inf")}, policy_version=versions)
    trajectory, stats = only(odd)
    assert trajectory["metrics"] == {"a": 1.0}
    assert (trajectory["initial_policy_version"], trajectory["final_policy_version"]) == (7, None)
    assert stats.changed["metrics that are not finite, left out"] == 1
    assert stats.changed["policy versions that are not whole numbers, left out"] == 1
    trajectory, _ = only(conversation("a", "1", 1.0, policy_version=None))
    assert trajectory["initial_policy_version"] is None


@pytest.mark.parametrize(("told", "numbers"), [(["7", "8"], (7, 8)), (["7", None], (None, None))])
def test_policy_versions_are_known_where_that_of_every_call_is(told, numbers):
    calls = [call(at, [user("q")], assistant("a"), policy_version=version) for at, version in enumerate(told)]
    versions = PolicyVersions(first="7", last=told[-1] or "7")
    trajectory, _ = only(rollout(calls, reward=1.0, policy_version=versions))
    assert (trajectory["initial_policy_version"], trajectory["final_policy_version"]) == numbers


@pytest.mark.parametrize("version", [str(2**63), "9" * 5000])
def test_policy_versions_that_no_number_holds_are_left_out_and_told(version):
    versions = PolicyVersions(first="7", last=version)
    trajectory, stats = only(conversation("a", "1", 1.0, policy_version=versions))
    assert (trajectory["initial_policy_version"], trajectory["final_policy_version"]) == (7, None)
    assert stats.changed["policy versions that are not whole numbers, left out"] == 1


def test_per_step_credit_leaves_out_what_has_no_single_reward(tmp_path):
    report = export(samples(), EXPORTER, tmp_path, advantage="grpo")
    assert report.trajectories_used == 5
    assert report.trajectories_skipped == {"status": 1, "no reward": 1}
    assert "advantages" in report.not_carried
