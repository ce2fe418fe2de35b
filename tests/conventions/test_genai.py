"""GenAI's attributes, details events and former per-message events."""

import json

import pytest

from art_otel.calls import Usage
from tests.conventions.builders import call, event, genai, log

ASKED = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"}]


def test_without_captured_content_nothing_is_known():
    found = genai(attributes={"gen_ai.response.finish_reasons": ["stop"], "gen_ai.response.id": "r"})
    assert (found.input_messages, found.choices, found.tools) == (None, None, None)
    assert found.response_id == "r"


def test_an_empty_prompt_is_no_unknown_one_but_a_call_has_a_choice():
    found = genai([], [])
    assert (found.input_messages, found.choices) == ((), None)


def test_instructions_lead_the_prompt():
    instructions = {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": "be kind"}])}
    found = genai(ASKED, attributes=instructions)
    assert [(message.role, message.content) for message in found.input_messages] == [
        ("system", "be kind"),
        ("user", "q"),
    ]
    assert genai(ASKED, attributes={"gen_ai.system_instructions": "be kind"}).input_messages == found.input_messages
    again = [{"role": "system", "parts": [{"type": "text", "content": "be kind"}]}, *ASKED]
    assert genai(again, attributes=instructions).input_messages == found.input_messages
    assert genai(attributes=instructions).input_messages is None
    assert len(genai(ASKED, attributes={"gen_ai.system_instructions": [5]}).input_messages) == 1


def test_finish_reasons_of_the_span_fill_in_for_messages_without():
    output = [{"role": "assistant", "parts": []}, {"role": "assistant", "parts": []}]
    found = genai(ASKED, output, {"gen_ai.response.finish_reasons": ["tool_call", "max_tokens"]})
    assert [choice.finish_reason for choice in found.choices] == ["tool_calls", "length"]
    as_text = genai(ASKED, output, {"gen_ai.response.finish_reasons": '["end_turn"]'})
    assert [choice.finish_reason for choice in as_text.choices] == ["stop", None]
    assert genai(ASKED, output, {"gen_ai.response.finish_reasons": "[cut"}).choices[0].finish_reason is None


@pytest.mark.parametrize(
    ("recorded", "word"),
    [
        ("tool_use", "tool_calls"),
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("my_own", "my_own"),
        ("unknown", None),
        ("", None),
        (5, None),
    ],
)
def test_finish_reasons_are_openais_words(recorded, word):
    (choice,) = genai(ASKED, [{"role": "assistant", "parts": [], "finish_reason": recorded}]).choices
    assert choice.finish_reason == word


def test_items_of_one_response_in_several_messages_are_one_choice():
    output = [
        {"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {}}],
            "finish_reason": "tool_call",
        },
    ]
    (choice,) = genai(ASKED, output, {"openai.api.type": "responses"}).choices
    assert (choice.message.content, len(choice.message.tool_calls), choice.finish_reason) == ("a", 1, "tool_calls")
    assert len(genai(ASKED, output).choices) == 2


def test_numbers_that_lost_their_type_are_numbers():
    found = genai(
        attributes={
            "gen_ai.request.temperature": "0.5",
            "gen_ai.request.max_tokens": "64",
            "gen_ai.request.seed": True,
            "gen_ai.request.stop_sequences": '["x"]',
            "gen_ai.usage.input_tokens": "7",
            "gen_ai.usage.output_tokens": 3.0,
            "gen_ai.usage.cache_read.input_tokens": "1_0",
            "gen_ai.is_streaming": "true",
        }
    )
    assert found.parameters == {"temperature": 0.5, "max_tokens": 64, "stop": ["x"]}
    assert found.usage == Usage(input_tokens=7, output_tokens=3)
    assert found.stream is True


def test_other_parameters_are_kept():
    schema = {"type": "object"}
    found = genai(
        attributes={
            "gen_ai.request.structured_output_schema": json.dumps(schema),
            "gen_ai.request.reasoning_effort": "low",
            "gen_ai.request.choice.count": 2,
            "gen_ai.user": "u1",
        }
    )
    assert found.parameters == {
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "reasoning_effort": "low",
        "n": 2,
        "user": "u1",
    }


def test_tools_that_cannot_be_read_are_unknown():
    assert genai(attributes={"gen_ai.tool.definitions": '[{"name": "f"}, 5]'}).tools is None
    found = genai(attributes={"gen_ai.tool.definitions": '[{"name": "f"'})
    assert (found.tools, found.cut) == (None, ("gen_ai.tool.definitions",))


def test_tools_that_are_no_functions_stay():
    tools = [
        {"type": "web_search"},
        {"type": "custom", "name": "c"},
        {"name": "f", "description": "d", "input_schema": {}},
    ]
    assert genai(attributes={"gen_ai.tool.definitions": json.dumps(tools)}).tools == (
        {"type": "web_search"},
        {"type": "custom", "name": "c"},
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}},
    )


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
    assert (found.input_messages, found.cut) == (None, ("gen_ai.messages",))


def test_an_event_that_is_no_message_makes_the_events_unreadable():
    found = call({}, [log("gen_ai.user.message", {"content": "q"}), log("gen_ai.choice", {"message": {"content": 5}})])
    assert (found.input_messages, found.choices, found.cut) == (None, None, ("gen_ai.messages",))


@pytest.mark.parametrize("name", ["gen_ai.input.messages", "gen_ai.output.messages"])
def test_json_that_was_cut_is_unknown_and_named(name):
    whole = json.dumps(SAID)
    found = call({"gen_ai.operation.name": "chat", name: whole[:-5]})
    assert (found.input_messages, found.choices, found.cut) == (None, None, (name,))


def test_cut_json_falls_back_on_a_less_exact_convention():
    attributes = {
        "gen_ai.input.messages": '[{"role": "us',
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "q",
    }
    found = call(attributes)
    assert found.input_messages[0].content == "q"
    assert found.cut == ("gen_ai.input.messages",)


def test_lone_surrogates_are_replaced_and_named():
    found = call({"gen_ai.input.messages": '[{"role": "user", "content": "a\\ud83d"}]'})
    assert found.input_messages[0].content == "a�"
    assert found.cut == ("gen_ai.input.messages",)


def test_nan_in_json_costs_only_itself():
    part = '{"type": "tool_call", "name": "f", "arguments": {"a": NaN}}'
    found = call({"gen_ai.output.messages": f'[{{"role": "assistant", "parts": [{part}]}}]'})
    assert found.choices[0].message.tool_calls[0].arguments == '{"a": null}'
    assert found.cut == ()
    asked = call({"gen_ai.input.messages": '[{"role": "user", "content": "q", "score": NaN}]'})
    assert asked.input_messages[0].content == "q"


@pytest.mark.parametrize("depth", [200, 900, 50_000])
@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.tool.definitions",
        "gen_ai.system_instructions",
        "input.value",
        "output.value",
        "llm.invocation_parameters",
        "art.request.parameters",
        "art.response.choices",
        "art.env_state",
    ],
)
def test_deep_json_raises_nothing(name, depth):
    bomb = "[" * depth + "]" * depth
    for text in (bomb, f'[{{"role": "user", "content": {bomb}}}]', f'{{"model": "m", "messages": [], "x": {bomb}}}'):
        json.dumps([message.parts for message in call({name: text}).input_messages or ()])
