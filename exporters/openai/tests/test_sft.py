"""SFT lines: what OpenAI takes, weights where this history trains, and a reason for all that is left out."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Message, ToolCall
from art_otel.data.sft import message_batches
from art_otel.exporting import ExportStats, export
from art_otel.testing import trajectories
from art_otel_openai import EXPORTER
from art_otel_openai.fine_tuning import OpenAISftConfig, encode_sft
from tests.data.rollouts import agent_rollouts, answer, assistant, call, chat, looking, rollout, user
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.openai_types import check_messages, check_tools
from tests.exporting.samples import group

LOOK = {"type": "function", "function": {"name": "look"}}


def encoded(*rollouts, **config) -> tuple[list[dict], ExportStats]:
    examples = message_batches(rollouts, allow_incomplete=True, status=("ok", "error")).examples()
    return encoded_by(encode_sft, examples, OpenAISftConfig(**config))


def check_line(line: dict) -> None:
    """Validation by OpenAI's own types keeps all of it: no field is unknown, none is missing."""
    messages = [{name: value for name, value in one.items() if name != "weight"} for one in line["messages"]]
    check_messages(messages)
    check_tools(line.get("tools", []))
    assert all(("weight" in one) == (one["role"] == "assistant") for one in line["messages"])
    assert line["messages"][-1]["role"] == "assistant"
    assert 1 in [one.get("weight") for one in line["messages"]]
    assert line.keys() <= {"messages", "tools", "parallel_tool_calls"}


@given(st.lists(trajectories(), max_size=3) | agent_rollouts())
def test_every_line_is_what_openai_takes(rollouts):
    lines, stats = encoded(*rollouts)
    for line in lines:
        check_line(line)
    given_examples = message_batches(rollouts, allow_incomplete=True, status=("ok", "error")).examples()
    assert len(lines) + stats.skipped.total() == len(list(given_examples))


def test_arguments_stay_the_text_that_was_sampled():
    (line,), _ = encoded(rollout(chat(user("q"), looking('{"city":"Paris" }'), answer("rain"), assistant("Rain."))))
    assert line["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Paris" }'


def test_what_is_trained_elsewhere_or_failed_has_weight_0():
    first = (user("q"), looking())
    asked = call(0, first[:1], first[1])
    one = call(1, (*first, answer("rain")), assistant("Rain."))
    other = call(2, (*first, answer("sun")), assistant("Sun."))
    failed = call(3, (*first, answer("sun"), assistant("Sun."), user("sure?")), assistant("No."), error_type="Cut")
    lines, _ = encoded(rollout([asked, one, other, failed]))
    weights = [[message.get("weight") for message in line["messages"]] for line in lines]
    assert weights == [[None, 1, None, 1], [None, 0, None, 1, None, 0]]


def test_reasoning_is_left_out_and_told():
    (line,), stats = encoded(rollout(chat(user("q"), assistant("a", reasoning="hm"))))
    assert line["messages"][1] == {"role": "assistant", "content": "a", "weight": 1}
    assert stats.changed == Counter({"reasoning left out of messages": 1})


def test_an_answer_of_nothing_is_the_empty_text():
    (line,), stats = encoded(rollout(chat(user("q"), assistant())))
    assert line["messages"][1]["content"] == ""
    assert stats.changed == Counter({"messages without content, which got an empty text": 1})


def test_a_name_of_a_tool_message_is_left_out_and_that_of_a_user_kept():
    told = Message(role="tool", content="rain", tool_call_id="call_0", name="look")
    asked = Message(role="user", content="q", name="ada")
    (line,), stats = encoded(rollout(chat(asked, looking(), told, assistant("Rain."))))
    assert line["messages"][0]["name"] == "ada"
    assert "name" not in line["messages"][2]
    assert stats.changed == Counter({"name left out of tool messages": 1})


def test_tools_and_the_option_beside_them():
    with_tools = rollout(chat(user("q"), assistant("a"), tools=(LOOK,)))
    (line,), _ = encoded(with_tools, parallel_tool_calls=False)
    assert line["tools"] == [LOOK]
    assert line["parallel_tool_calls"] is False
    (line,), _ = encoded(rollout(chat(user("q"), assistant("a"), tools=())), parallel_tool_calls=True)
    assert line.keys() == {"messages"}


IMAGE = json.dumps([{"type": "image", "url": "https://example.org/a.png"}])


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (chat(Message(role="critic", content="q"), assistant("a")), "a message with a role that OpenAI does not have"),
        (chat(user("q"), looking(id=None), assistant("a")), "a tool call without an id"),
        (chat(user("q"), looking(), answer("r", id=None), assistant("a")), "a tool message without a tool_call_id"),
        (chat(user("q"), assistant("a"), tools=({"type": "web_search"},)), "a tool that is not a function"),
        (chat(user("q"), assistant("a"), tools=("look",)), "a tool that is not a function"),
        (chat(user("q"), assistant(None, parts=IMAGE)), "content that OpenAI does not take"),
        ([call(0, (user("q"),), user("a"))], "the last message is not the assistant's"),
        (
            [call(0, (user("q"),), user("a")), call(1, (user("q"), user("a")), assistant("b"))],
            "a sampled message is not from the assistant",
        ),
    ],
)
def test_what_openai_has_no_words_for_is_left_out_with_the_reason(calls, reason):
    lines, stats = encoded(rollout(calls))
    assert lines == []
    (told,) = stats.skipped
    assert told.startswith(reason)


def test_an_image_of_the_user_is_kept():
    (line,), _ = encoded(rollout(chat(user("q"), assistant("a"), Message(role="user", parts=IMAGE), assistant("b"))))
    assert line["messages"][2]["content"] == [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    check_line(line)


def test_several_tool_calls_keep_their_order():
    both = assistant(tool_calls=tuple(ToolCall(id=f"c{n}", name="look", arguments=f"{n}") for n in range(2)))
    (line,), _ = encoded(rollout(chat(user("q"), both)))
    assert [one["function"]["arguments"] for one in line["messages"][1]["tool_calls"]] == ["0", "1"]


def test_the_report_says_what_has_no_place(tmp_path):
    report = export(
        group(),
        EXPORTER,
        tmp_path,
    )
    assert report.records == report.trajectories_used == 3
    assert report.not_carried["reward"].trajectories == 3
    assert report.not_carried["metadata"].trajectories == 1
    assert report.not_carried["logprobs"].trajectories is None
