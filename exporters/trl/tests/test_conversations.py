"""Conversations and pairs: what a template is given, and a reason for all that is left out."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Message, ToolCall
from art_otel.data.preferences import preference_batches
from art_otel.data.sft import message_batches
from art_otel.exporting import NO_ASSISTANT, NO_PROMPT, SAME, ExportStats, export
from art_otel.exporting.encoding import CUT, MORE_THAN_TEXT, REFUSAL
from art_otel.testing import JSON, trajectories
from art_otel_trl.conversations import (
    BETWEEN,
    END_CUT,
    NO_OBJECT,
    TRAINED_TOO,
    ChatConfig,
    DpoConfig,
    encode_chat,
    encode_dpo,
)
from tests.data.rollouts import agent_rollouts, answer, assistant, call, chat, looking, rollout, user
from tests.exporting.exported import EVERY, encoded

IMAGE = json.dumps([{"type": "image", "url": "https://example.org/a.png"}])


def chats(*rollouts, **config) -> tuple[list[dict], ExportStats]:
    return encoded(encode_chat, message_batches(rollouts, **EVERY).examples(), ChatConfig(**config))


def pairs(*rollouts, **config) -> tuple[list[dict], ExportStats]:
    return encoded(encode_dpo, preference_batches(rollouts, **EVERY).pairs(), DpoConfig(**config))


def messages_of(row: dict) -> list[dict]:
    if "messages" in row:
        return json.loads(row["messages"])
    return json.loads(row["prompt"]) + json.loads(row["completion"])


@pytest.mark.long
@given(
    st.lists(trajectories(), max_size=3) | agent_rollouts(),
    st.sampled_from(["prompt_completion", "messages"]),
    st.sampled_from(["object", "text"]),
)
def test_every_row_is_conversational(rollouts, layout, arguments):
    rows, stats = chats(*rollouts, layout=layout, tool_arguments=arguments)
    assert len(rows) + stats.skipped.total() == len(list(message_batches(rollouts, **EVERY).examples()))
    for row in rows:
        messages = messages_of(row)
        assert messages[-1]["role"] == "assistant"
        assert all(isinstance(message["content"], str) for message in messages)
        assert layout == "messages" or json.loads(row["prompt"])
        given_calls = [one for message in messages for one in message.get("tool_calls", ())]
        assert all(isinstance(one["function"]["arguments"], dict | str) for one in given_calls)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_arguments_are_the_object_or_the_text(arguments):
    text = json.dumps(arguments)
    talk = rollout(chat(user("q"), looking(text), answer("rain"), assistant("Rain.")))
    found = [
        messages_of(chats(talk, tool_arguments=how)[0][0])[1]["tool_calls"][0]["function"]["arguments"]
        for how in ("object", "text")
    ]
    assert found[1] == text
    assert found[0] in (arguments, text)


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "no json",
        '{"a": NaN}',
        '{"a": [1e999]}',
        f'{{"a": {2**63}}}',
        '{"a":' * 2000 + "1" + "}" * 2000,
        '{"a": ["\\ud83d"]}',
        '{"\\udc00": 1}',
    ],
)
def test_arguments_that_datasets_would_not_read_stay_text(text):
    (row,), stats = chats(rollout(chat(user("q"), looking(text), answer("rain"), assistant("Rain."))))
    assert messages_of(row)[1]["tool_calls"][0]["function"]["arguments"] == text
    assert stats.changed == Counter({NO_OBJECT: 1})


def test_half_a_character_in_arguments_costs_no_file(tmp_path):
    good = [user("q"), looking('{"a": "\\ud83d\\ude00"}'), answer("rain"), assistant("Rain.")]
    bad = [user("q"), looking('{"a": "\\ud83d"}'), answer("rain"), assistant("Sun.")]
    for file_format, changed in (("chat", 1), ("dpo", 1)):
        report = export(two(good, bad), "trl", tmp_path / f"{file_format}.parquet", format=file_format)
        assert report.changed[NO_OBJECT] == changed
        assert "😀" in str(pq.read_table(tmp_path / f"{file_format}.parquet").to_pylist())


def test_no_arguments_are_the_empty_object():
    (row,), stats = chats(rollout(chat(user("q"), looking(""), answer("rain"), assistant("Rain."))))
    assert messages_of(row)[1]["tool_calls"][0]["function"]["arguments"] == {}
    assert not stats.changed


def test_what_a_history_shares_with_an_earlier_one_is_its_prompt():
    first = (user("q"), looking())
    asked = call(0, first[:1], first[1])
    one = call(1, (*first, answer("rain")), assistant("Rain."))
    other = call(2, (*first, answer("sun")), assistant("Sun."))
    rows, stats = chats(rollout([asked, one, other]))
    assert [len(json.loads(row["prompt"])) for row in rows] == [1, 3]
    assert not stats.changed
    rows, stats = chats(rollout([asked, one, other]), layout="messages")
    assert stats.changed == Counter({TRAINED_TOO: 1})


def test_a_failed_answer_at_the_end_is_cut_and_between_it_is_told():
    first = (user("q"), assistant("a"))
    second = (*first, user("sure?"), assistant("b"))
    failed = call(1, second[:3], second[3], error_type="Cut")
    rows, stats = chats(rollout([call(0, first[:1], first[1]), failed]))
    assert [len(messages_of(row)) for row in rows] == [2]
    assert stats.changed == Counter({END_CUT: 1})
    again = call(2, (*second, user("yes?")), assistant("c"))
    rows, stats = chats(rollout([call(0, first[:1], first[1]), failed, again]))
    assert [len(messages_of(row)) for row in rows] == [6]
    assert stats.changed == Counter({TRAINED_TOO: 1})


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (chat(user("q"), assistant(None, parts=IMAGE)), MORE_THAN_TEXT),
        ([call(0, (user("q"),), user("a"))], NO_ASSISTANT),
        ([call(0, (), assistant("a"))], NO_PROMPT),
    ],
)
def test_what_trl_has_no_words_for_is_left_out_with_the_reason(calls, reason):
    rows, stats = chats(rollout(calls))
    assert rows == []
    assert stats.skipped == Counter({reason: 1})


def test_a_list_of_messages_needs_no_prompt():
    (row,), _ = chats(rollout([call(0, (), assistant("a"))]), layout="messages")
    assert messages_of(row) == [{"role": "assistant", "content": "a"}]


def test_reasoning_is_kept_and_a_refusal_is_content():
    (row,), stats = chats(rollout(chat(user("q"), assistant(None, refusal="No.", reasoning="hm"))))
    assert messages_of(row)[1] == {"role": "assistant", "content": "No.", "reasoning_content": "hm"}
    assert stats.changed == Counter({REFUSAL: 1})


def test_tools_are_json_and_null_where_there_are_none(tmp_path):
    tools = ({"type": "function", "function": {"name": "look", "parameters": {}}},)
    rollouts = [rollout(chat(user("q"), assistant("a"), tools=each)) for each in (tools, (), None)]
    export(rollouts, "trl", tmp_path / "c.parquet", format="chat")
    assert pq.read_table(tmp_path / "c.parquet")["tools"].to_pylist() == [json.dumps(tools), None, None]


def two(good: list, bad: list) -> list:
    return [
        rollout(chat(*messages), rollout_id=name, group_id="g", reward=reward)
        for name, messages, reward in (("good", good, 1.0), ("bad", bad, 0.0))
    ]


def test_a_pair_keeps_what_tools_said_between_the_answers():
    (row,), stats = pairs(*two([user("q"), looking(), answer("rain"), assistant("Rain.")], [user("q"), assistant("?")]))
    assert json.loads(row["prompt"]) == [{"role": "user", "content": "q"}]
    assert [message["role"] for message in json.loads(row["chosen"])] == ["assistant", "tool", "assistant"]
    assert [row["chosen_reward"], row["rejected_reward"]] == [1.0, 0.0]
    assert stats.changed == Counter({BETWEEN: 1})


def test_later_messages_are_cut_or_the_pair_is_left_out():
    both = two([user("q"), looking(), answer("rain"), assistant("Rain.")], [user("q"), assistant("?")])
    (row,), stats = pairs(*both, later_messages="truncate")
    assert [message["role"] for message in json.loads(row["chosen"])] == ["assistant"]
    assert stats.changed == Counter({CUT: 1})
    rows, stats = pairs(*both, later_messages="drop")
    assert rows == []
    assert stats.skipped == Counter({"more than one message a side": 1})


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ([assistant("a")], [assistant("b")], NO_PROMPT),
        ([user("q"), assistant(refusal="No.")], [user("q"), assistant("No.")], SAME),
        ([user("q"), assistant(None, parts=IMAGE)], [user("q"), assistant("b")], MORE_THAN_TEXT),
    ],
)
def test_a_pair_that_trl_cannot_compare_is_left_out(good, bad, reason):
    rows, stats = pairs(*two(good, bad))
    assert rows == []
    assert stats.skipped == Counter({reason: 1})


def test_a_side_that_the_assistant_did_not_say_is_left_out():
    both = [
        rollout([call(0, (user("q"),), said)], rollout_id=name, group_id="g", reward=reward)
        for name, said, reward in (("good", user("a"), 1.0), ("bad", assistant("b"), 0.0))
    ]
    rows, stats = pairs(*both)
    assert rows == []
    assert stats.skipped == Counter({NO_ASSISTANT: 1})


def test_several_tool_calls_keep_their_order_and_their_own_keys():
    arguments = ('{"c":9}', '{"a":null,"b":[1,{"d":"x"}]}')
    both = assistant(tool_calls=tuple(ToolCall(id=f"c{n}", name="f", arguments=arguments[n]) for n in range(2)))
    named = Message(role="tool", content="r", tool_call_id="c0", name="f")
    (row,), _ = chats(rollout(chat(user("q"), both, named, assistant("a"))))
    asked, told = messages_of(row)[1:3]
    assert [one["function"]["arguments"] for one in asked["tool_calls"]] == [json.loads(each) for each in arguments]
    assert told == {"role": "tool", "content": "r", "tool_call_id": "c0", "name": "f"}
