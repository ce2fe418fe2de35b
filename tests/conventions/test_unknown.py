"""What an instrumentor or the SDK lost is unknown: it is neither guessed nor taken for something else."""

import json

import pytest

from art_otel.calls import Message
from art_otel.conventions import integer, merge_calls, parse_call
from tests.conventions.builders import call, genai, log, openinference, span
from tests.conventions.recorded import checked
from tests.gaps import kinds, unread

REFUSED = "I will not do it"


def said(found):
    return [(choice.finish_reason, choice.message.content) for choice in found.choices or ()]


def test_calls_that_lost_their_oldest_attributes_are_calls():
    found = checked("drop-v2")
    assert [int(one.gaps[-1].evidence.removesuffix(" attributes")) for one in found] == [8, 13, 22, 32, 36]
    assert [one.input_messages for one in found] == [None] * 5
    assert [one.choices[0].finish_reason for one in found] == ["tool_calls", "stop", "tool_calls", "stop", "stop"]
    assert found[0].choices[0].message.tool_calls[0].arguments == '{"city":"Paris"}'
    assert found[4].choices[0].message.content.startswith("answer 0 to 12")


def test_the_rest_of_a_completion_is_no_completion():
    rest = {"gen_ai.completion.0.tool_calls.0.arguments": "{}"}
    assert call(rest, dropped_attributes_count=9).choices is None
    assert unread(call(rest, dropped_attributes_count=9)) == ("gen_ai.completion",)
    assert len(call(rest).choices) == 1


def test_tool_calls_beside_the_message_of_an_event():
    found = checked("tlevent-shapes")
    (choice,) = found[1].choices
    assert (choice.message.content, choice.finish_reason) == ("let me look", "tool_calls")
    assert [(one.name, one.arguments) for one in choice.message.tool_calls] == [
        ("get_weather", '{"city":  "Zürich", "n": 1.0}'),
        ("noargs", ""),
    ]
    assert found[3].choices is None
    assert said(found[5]) == [("stop", "")]


def test_a_message_of_an_event_counts_more_than_what_stands_beside_it():
    beside = {"refusal": "no", "reasoning_content": "hm", "role": "critic"}
    (choice,) = call({}, [log("gen_ai.choice", {**beside, "message": {"content": None, "role": "assistant"}})]).choices
    assert choice.message == Message(role="assistant", refusal="no", reasoning="hm")


@pytest.mark.parametrize("name", ["tl+ga+oi-shapes", "tl+ga-shapes"])
def test_a_refusal_that_one_recorder_wrote_as_text_is_a_refusal(name):
    messages = [one.choices[0].message for one in checked(name)]
    assert len(messages) == 9
    assert messages[3] == Message(role="assistant", refusal=REFUSED)
    assert messages[5] == Message(role="assistant", content="")


BODY = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


def both(message, part_texts, **fields):
    """The message that OpenInference and GenAI recorded, merged in either order."""
    exact = openinference(BODY, {"choices": [{"index": 0, "message": {"role": "assistant", **message}}]}, **fields)
    parts = [{"type": "text", "content": text} for text in part_texts]
    other = genai(None, [{"role": "assistant", "parts": parts}])
    one, swapped = (merge_calls(list(pair)).choices[0].message for pair in ((exact, other), (other, exact)))
    assert one == swapped
    return one


def test_what_the_exact_body_says_is_said_by_nobody_else():
    assert both({"content": None, "refusal": REFUSED}, [REFUSED]) == Message(role="assistant", refusal=REFUSED)
    assert both({"content": None}, [""]) == Message(role="assistant", content="")
    assert both({}, [""]) == Message(role="assistant")
    assert both({"content": None, "refusal": REFUSED}, ["more"]) == Message(role="assistant", refusal=REFUSED)
    called = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
    assert both({"content": None, "tool_calls": called}, ["more"]).content is None
    assert both({"content": REFUSED, "refusal": REFUSED}, [REFUSED]).content == REFUSED
    assert both({"content": "a b"}, ["a ", "b"]).parts is not None


def test_a_choice_known_by_its_ids_takes_the_words_of_another_recording():
    ids = call({"art.tokens.completion.0": "i4:1:BQAAAA==", "gen_ai.operation.name": "chat"})
    assert ids.choices[0].message == Message(role="assistant")
    text = genai(None, [{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}])
    (choice,) = merge_calls([text, ids]).choices
    assert (choice.message.content, choice.token_ids.tolist()) == ("a", [5])


def test_messages_of_which_only_the_role_is_left_are_unknown():
    for found in checked("v3-image64"):
        assert (found.input_messages, unread(found)) == (None, ())
        assert len(found.choices) == 1
    streams = checked("v3-stream")
    assert [one.choices is None for one in streams] == [False] * 4 + [True, False, True, False]
    flattened = {"llm.input_messages.0.message.role": "user", "llm.output_messages.0.message.role": "assistant"}
    found = call(flattened, kind="internal")
    assert (found.input_messages, found.choices, unread(found)) == (None, None, ())


def test_an_assistant_that_said_nothing_stays_in_an_exact_history():
    history = [*BODY["messages"], {"role": "assistant", "content": None}]
    assert openinference({**BODY, "messages": history}).input_messages[1] == Message(role="assistant")


def test_a_stream_that_broke_failed_and_keeps_its_part():
    found = checked("ga-errors")
    assert [one.error_type for one in found] == [
        None,
        "openai.BadRequestError",
        "openai.InternalServerError",
        None,
        "error",
        "error",
    ]
    assert said(found[4])[0][0] is None
    assert said(found[4])[0][1].startswith("answer")
    assert said(found[5]) == [(None, "")]


@pytest.mark.parametrize(
    ("found", "error_type"),
    [
        (openinference(BODY, {"choices": [{"message": {"content": "a"}, "finish_reason": "error"}]}), "error"),
        (genai(attributes={"gen_ai.response.finish_reasons": ["stop", "ERROR"]}), "error"),
        (genai(attributes={"gen_ai.response.finish_reasons": ["error"], "error.type": "timeout"}), "timeout"),
        (genai(attributes={"gen_ai.response.finish_reasons": ["stop"]}), None),
    ],
)
def test_an_error_is_no_finish_reason(found, error_type):
    assert found.error_type == error_type
    assert all(choice.finish_reason is None for choice in found.choices or ())


@pytest.mark.parametrize("name", ["oi-text", "tl-text", "tlevent-text"])
def test_several_prompts_of_a_text_completion_are_a_parameter(name):
    one, several = checked(name)
    assert (one.operation_name, several.operation_name) == ("text_completion", "text_completion")
    assert one.input_messages == (Message(role="user", content="once upon"),)
    assert (several.input_messages, several.parameters) == (None, {"prompt": ["a", "b"]})
    assert "several prompts" in kinds(several)
    assert [content[:7] for _, content in said(several)] == [" done 0", " done 1"]


def test_the_first_of_several_prompts_is_not_the_prompt_of_all_choices():
    one, several = checked("v3-text")
    assert one.input_messages == (Message(role="user", content="once upon"),)
    assert (several.input_messages, unread(several), len(several.choices)) == (None, (), 2)


def test_prompts_given_as_ids():
    ids, several, text = checked("oi-tokprompt")
    assert ids.prompt_token_ids.tolist() == [5, 6, 7]
    assert several.parameters["prompt"] == [[5, 6], [8]]
    assert [one.input_messages for one in (ids, several)] == [None, None]
    assert text.input_messages == (Message(role="user", content="once upon"),)


@pytest.mark.parametrize("name", ["oi-tokprompt", "tl-tokprompt", "v2-tokprompt"])
def test_a_prompt_of_ids_is_no_message_and_was_not_cut(name):
    found = checked(name)
    assert [one.input_messages is None for one in found] == [True, True, False]
    assert {one.operation_name for one in found} == {"text_completion"}
    assert {unread(one) for one in found} == {()}


@pytest.mark.parametrize(
    ("request_body", "response", "name", "operation"),
    [
        ({"model": "m", "prompt": "a"}, None, "LLM", "text_completion"),
        ({"model": "m"}, {"object": "text_completion", "choices": [{"text": "a"}]}, "LLM", "text_completion"),
        ({"model": "m"}, None, "Completion", "text_completion"),
        (BODY, {"object": "chat.completion", "choices": []}, "completion", "chat"),
        ({"model": "m"}, None, "LLM", "chat"),
    ],
)
def test_the_operation_by_body_and_name(request_body, response, name, operation):
    assert openinference(request_body, response, name=name).operation_name == operation


def test_a_chat_of_several_users_is_one_prompt():
    asked = [{"role": "user", "parts": [{"type": "text", "content": text}]} for text in "ab"]
    assert len(genai(asked).input_messages) == 2
    assert genai(asked, attributes={"gen_ai.operation.name": "text_completion"}).input_messages is None
    mixed = [{**asked[0], "role": "system"}, asked[1]]
    assert len(genai(mixed, attributes={"gen_ai.operation.name": "text_completion"}).input_messages) == 2


def test_json_that_is_no_message_list_was_not_cut():
    for value in ([5], [{"role": "user", "content": 5}], 5):
        found = call({"gen_ai.input.messages": json.dumps(value), "gen_ai.output.messages": json.dumps(value)})
        assert (found.input_messages, found.choices, unread(found)) == (None, None, ())


def test_recordings_of_a_stream_that_broke_are_one_failed_call():
    outer = span({"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["error"]}, scope="outer")
    inner = span({"openinference.span.kind": "LLM", "input.value": json.dumps(BODY)}, scope="inner")
    for pair in ((outer, inner), (inner, outer)):
        assert merge_calls([parse_call(one) for one in pair]).error_type == "error"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("9" * 5000, None),
        ("3", 3),
        ("3.0", 3),
        ("-", None),
        ("--3", None),
        ("3.5", None),
        ("1_0", None),
        ("", None),
        (True, None),
        (None, None),
    ],
)
def test_whole_numbers_also_as_text(value, number):
    assert integer(value) == number
