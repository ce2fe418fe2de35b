"""GenAI's details events and former per-message events, as log records and on the span."""

import json

import pytest

from tests.conventions.builders import call, event, genai, log
from tests.conventions.test_genai import ASKED, SAID
from tests.gaps import kinds, unread


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize("where", ["span event", "log record", "log body", "old log record"])
def test_details_events(where, structured):
    recorded = {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": SAID, "gen_ai.response.id": "r"}
    if not structured:
        recorded = {name: value if isinstance(value, str) else json.dumps(value) for name, value in recorded.items()}
    name = "gen_ai.client.inference.operation.details"
    events = [event(name, recorded)] if where == "span event" else ()
    logs = {
        "log record": [log(name, attributes=recorded)],
        "log body": [log(name, body=recorded)],
        "old log record": [log("", attributes={"event.name": name, **recorded})],
    }.get(where, [])
    found = call({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, logs, events=events)
    assert found.input_messages == genai(ASKED).input_messages
    assert found.choices[0].message.content == "a"
    assert found.response_id == "r"
    assert found.conventions == ("gen_ai", "gen_ai.details")


FUNCTION = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [FUNCTION]}}


def message_logs():
    return [
        log("gen_ai.system.message", {"content": "s"}, time_ns=1),
        log("gen_ai.user.message", {"content": "q", "role": "developer"}, time_ns=2),
        log("gen_ai.assistant.message", {"tool_calls": [FUNCTION]}, time_ns=3),
        log("gen_ai.tool.message", {"id": "c1", "content": "1"}, time_ns=4),
        log("gen_ai.choice", CHOICE, time_ns=5),
    ]


def test_an_event_a_message():
    found = call({"gen_ai.system": "openai"}, message_logs())
    assert [message.role for message in found.input_messages] == ["system", "developer", "assistant", "tool"]
    assert found.input_messages[3].tool_call_id == "c1"
    assert found.choices[0].message.tool_calls[0].arguments == '{"a":1}'
    assert found.choices[0].message.tool_calls[0].exact
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.provider == "openai"


def test_the_order_and_repetition_of_log_records_do_not_matter():
    expected = call({}, message_logs())
    assert call({}, [*reversed(message_logs()), *message_logs()]) == expected


def test_without_captured_content_events_tell_nothing():
    logs = [
        log("gen_ai.user.message", {}),
        log(
            "gen_ai.choice",
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
            },
        ),
    ]
    found = call({}, logs)
    assert (found.input_messages, found.choices) == (None, None)


@pytest.mark.parametrize(
    "attributes",
    [
        {"content": "q"},
        {"gen_ai.event.content": '{"content": "q", "role": "user"}'},
        {"content": '[{"text": "q"}]'},
        {"content": '[{"type": "text", "text": "q"}]'},
    ],
)
def test_messages_in_span_events(attributes):
    found = call({}, events=[event("gen_ai.user.message", {"gen_ai.system": "x", **attributes})])
    assert [(message.role, message.content) for message in found.input_messages] == [("user", "q")]


def test_text_that_only_looks_like_parts_stays_text():
    for text in ('[{"a": 1}]', "[{not JSON", '[{"text": "q", "lang": "en"}]'):
        found = call({}, events=[event("gen_ai.user.message", {"content": text})])
        assert found.input_messages[0].content == text


@pytest.mark.parametrize(
    "attributes",
    [
        {"message": '{"role": "assistant", "content": "a"}', "finish_reason": "end_turn"},
        {"message": '[{"type": "text", "text": "a"}]', "finish_reason": "end_turn"},
        {"message": "a", "finish_reason": "end_turn"},
        {"content": "a", "finish_reason": "end_turn", "index": "0"},
    ],
)
def test_choices_in_span_events(attributes):
    (choice,) = call({}, events=[event("gen_ai.choice", attributes)]).choices
    assert (choice.index, choice.message.content, choice.finish_reason) == (0, "a", "stop")


def test_tool_calls_of_an_event_as_json_text():
    (choice,) = call({}, events=[event("gen_ai.choice", {"tool_calls": json.dumps([FUNCTION])})]).choices
    assert choice.message.tool_calls[0].name == "f"


def test_the_oldest_events():
    events = [
        event(
            "gen_ai.content.prompt",
            {"gen_ai.prompt": json.dumps([{"role": "system", "content": "s"}, {"content": "q"}])},
        ),
        event("gen_ai.content.completion", {"gen_ai.completion": json.dumps([{"role": "assistant", "content": "a"}])}),
    ]
    found = call({}, events=events)
    assert [(message.role, message.content) for message in found.input_messages] == [("system", "s"), ("user", "q")]
    assert found.choices[0].message.content == "a"
    bare = call({}, events=[event("gen_ai.content.completion", {"gen_ai.completion": "a"})])
    assert bare.choices[0].message.content == "a"


def test_dropped_span_events_make_the_prompt_unknown():
    found = call({}, events=[event("gen_ai.user.message", {"content": "q"})], dropped_events_count=1)
    assert (found.input_messages, kinds(found)) == (None, ("dropped",))


def test_an_event_that_is_no_message_makes_the_events_unreadable():
    found = call({}, [log("gen_ai.user.message", {"content": "q"}), log("gen_ai.choice", {"message": {"content": 5}})])
    assert (found.input_messages, found.choices, unread(found)) == (None, None, ())


@pytest.mark.parametrize(("asked", "said"), [('[{"text": "q"}]', ""), ("q", "[]")])
def test_an_empty_list_is_no_text_where_messages_are_lists_of_blocks(asked, said):
    events = [
        event("gen_ai.user.message", {"content": asked}, time_ns=1),
        event("gen_ai.assistant.message", {"content": "[]"}, time_ns=2),
        event("gen_ai.user.message", {"content": asked}, time_ns=3),
        event("gen_ai.choice", {"message": "[]", "finish_reason": "end_turn"}, time_ns=4),
    ]
    found = call({}, events=events)
    assert [message.content for message in found.input_messages] == ["q", said, "q"]
    assert [choice.message.content for choice in found.choices] == [said]


@pytest.mark.parametrize(
    ("reasons", "text", "stream"), [((None, "stop"), "0 1 ", True), (("stop", "stop"), "1 ", None)]
)
def test_choices_of_one_index_are_chunks_where_only_the_last_has_ended(reasons, text, stream):
    said = [
        {"index": 0, "message": {"content": f"{at} "}, "finish_reason": reason} for at, reason in enumerate(reasons)
    ]
    logs = [log("gen_ai.choice", choice, time_ns=at) for at, choice in enumerate(said)]
    found = call({}, logs)
    assert [(choice.message.content, choice.finish_reason) for choice in found.choices] == [(text, "stop")]
    assert found.stream is stream
