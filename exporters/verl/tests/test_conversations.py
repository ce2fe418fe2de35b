"""Conversations and prompts: what verl's readers take, and a reason for all that is left out."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Message, ToolCall
from art_otel.data.sft import message_batches
from art_otel.exporting import NO_ASSISTANT, ExportStats, export
from art_otel.exporting.encoding import MORE_THAN_TEXT, REFUSAL
from art_otel.testing import trajectories
from art_otel_verl.conversations import (
    END_CUT,
    NO_PROMPT,
    SAME_GROUP,
    TOOL_CALLS,
    PromptsConfig,
    encode_prompts,
    encode_sft,
    template_message,
)
from tests.data.rollouts import agent_rollouts, answer, assistant, call, chat, looking, rollout, user
from tests.exporting.exported import EVERY, encoded, rewarded, usable

IMAGE = json.dumps([{"type": "image", "url": "https://example.org/a.png"}])
any_rollouts = st.lists(trajectories(), max_size=3) | agent_rollouts()


def sft(*rollouts) -> tuple[list[dict], ExportStats]:
    return encoded(encode_sft, message_batches(rollouts, **EVERY).examples())


def prompts(*rollouts, **config) -> tuple[list[dict], ExportStats]:
    return encoded(encode_prompts, rewarded(rollouts), PromptsConfig(**config))


@pytest.mark.long
@given(any_rollouts)
def test_every_sampled_message_is_trained_once(rollouts):
    rows, stats = sft(*rollouts)
    examples = list(message_batches(rollouts, **EVERY).examples())
    assert len(rows) + stats.skipped.total() == len(examples)
    for row in rows:
        assert all(isinstance(message["content"], str) for message in row["messages"])
        assert row["messages"][-1]["train"] is True
        assert {message["train"] for message in row["messages"] if message["role"] != "assistant"} <= {None}
    if not stats.skipped:
        trained = [message["train"] for row in rows for message in row["messages"]].count(True)
        assert trained == sum(sum(example.train) for example in examples)


@pytest.mark.long
@given(any_rollouts)
def test_a_group_has_one_prompt(rollouts):
    rollouts = usable(rollouts)
    rows, stats = prompts(*rollouts)
    assert len(rows) + stats.trajectories_skipped.total() == len(rollouts)
    groups = [row["extra_info"]["group_id"] for row in rows if row["extra_info"]["group_id"] is not None]
    assert len(set(groups)) == len(groups)
    assert [row["extra_info"]["index"] for row in rows] == list(range(len(rows)))


def test_messages_come_back_with_only_what_they_had(tmp_path):
    calls = (ToolCall(id="c0", name="f", arguments='{"c":9}'), ToolCall(id=None, name="f", arguments='{"a":null}'))
    talk = chat(user("q"), assistant("I look.", tool_calls=calls, reasoning="hm"), answer("r", id="c0"), assistant("a"))
    export([rollout(talk)], "verl", tmp_path / "s.parquet", format="sft")
    ((asked, looked, told, said),) = (row["messages"] for row in pq.read_table(tmp_path / "s.parquet").to_pylist())
    assert template_message(asked, as_text=False) == {"role": "user", "content": "q"}
    assert template_message(told, as_text=False) == {"role": "tool", "content": "r", "tool_call_id": "c0"}
    assert template_message(said, as_text=False) == {"role": "assistant", "content": "a", "train": True}
    found = template_message(looked, as_text=False)
    assert found["reasoning_content"] == "hm"
    assert [one["function"]["arguments"] for one in found["tool_calls"]] == [{"c": 9}, {"a": None}]
    assert [one.get("id") for one in found["tool_calls"]] == ["c0", None]
    as_text = template_message(looked, as_text=True)
    assert [one["function"]["arguments"] for one in as_text["tool_calls"]] == ['{"c":9}', '{"a":null}']


@pytest.mark.parametrize("text", ["[1]", "no json", '{"a":' * 100_000, '{"a": "\\ud83d"}', '{"a": NaN}'])
def test_arguments_that_are_no_object_stay_text(text):
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}
    (found,) = template_message(message, as_text=False)["tool_calls"]
    assert found["function"]["arguments"] == text


def test_no_arguments_are_the_empty_object():
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}
    (found,) = template_message(message, as_text=False)["tool_calls"]
    assert found["function"]["arguments"] == {}


def test_what_is_trained_elsewhere_or_failed_is_not_trained():
    first = (user("q"), looking())
    asked = call(0, first[:1], first[1])
    one = call(1, (*first, answer("rain")), assistant("Rain."))
    other = call(2, (*first, answer("sun")), assistant("Sun."))
    failed = call(3, (*first, answer("sun"), assistant("Sun."), user("sure?")), assistant("No."), error_type="Cut")
    rows, stats = sft(rollout([asked, one, other, failed]))
    trains = [[message["train"] for message in row["messages"]] for row in rows]
    assert trains == [[None, True, None, True], [None, False, None, True]]
    assert stats.changed == Counter({END_CUT: 1})


def test_tools_are_a_list_of_json_that_is_empty_where_there_are_none():
    tools = ({"type": "function", "function": {"name": "f", "parameters": {"é": 1}}}, "search")
    rows = [sft(rollout(chat(user("q"), assistant("a"), tools=each)))[0][0] for each in (tools, (), None)]
    assert [[json.loads(tool) for tool in row["tools"]] for row in rows] == [list(tools), [], []]


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (chat(user("q"), assistant(None, parts=IMAGE)), MORE_THAN_TEXT),
        ([call(0, (user("q"),), user("a"))], NO_ASSISTANT),
    ],
)
def test_what_verl_has_no_words_for_is_left_out_with_the_reason(calls, reason):
    rows, stats = sft(rollout(calls))
    assert rows == []
    assert stats.skipped == Counter({reason: 1})


def test_a_refusal_is_content():
    (row,), stats = sft(rollout(chat(user("q"), assistant(None, refusal="No."))))
    assert row["messages"][1]["content"] == "No."
    assert stats.changed == Counter({REFUSAL: 1})


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([], NO_PROMPT),
        ([call(0, None, assistant("a"))], NO_PROMPT),
        ([call(0, (), assistant("a"))], NO_PROMPT),
        ([call(0, (user("q"), looking(), answer("r")), assistant("a"))], TOOL_CALLS),
        ([call(0, (Message(role="user", parts=IMAGE),), assistant("a"))], MORE_THAN_TEXT),
    ],
)
def test_a_prompt_that_verl_does_not_take_is_left_out(calls, reason):
    rows, stats = prompts(rollout(calls))
    assert rows == []
    assert stats.trajectories_skipped == Counter({reason: 1})


def test_a_group_that_begins_with_no_prompt_has_that_of_another_member():
    asked = chat(user("q"), assistant("a"))
    members = [rollout(calls, f"r{at}", group_id="g") for at, calls in enumerate(([], asked, asked))]
    (row,), stats = prompts(*members)
    assert row["extra_info"]["rollout_id"] == "r1"
    assert stats.trajectories_skipped == Counter({NO_PROMPT: 1, SAME_GROUP: 1})


@pytest.mark.parametrize(("value", "truth"), [("four", "four"), (4, "4"), ([1, "é"], '[1, "é"]'), (None, None)])
def test_the_ground_truth_is_metadata(value, truth):
    asked = rollout(chat(user("q"), assistant("a")), metadata={"answer": value}, split="train")
    (row,), _ = prompts(asked, ground_truth="answer", data_source="sums")
    assert row["reward_model"]["ground_truth"] == truth
    assert row["data_source"] == "sums"
    assert row["extra_info"]["split"] == "train"
