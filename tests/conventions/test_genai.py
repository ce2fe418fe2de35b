"""GenAI's attributes: what they say, and what becomes of those that cannot be read."""

import json

import msgspec
import pytest

from art_otel.calls import Usage
from art_otel.conventions import parse_call
from art_otel.spans import Scope
from tests.conventions.builders import call, genai, span
from tests.gaps import unread

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
    ("of_response", "of_message", "reason"),
    [
        ("length", "incomplete", "length"),
        ("content_filter", "incomplete", "content_filter"),
        ("refusal", "stop", "refusal"),
        ("max_output_tokens", "tool_call", "length"),
        ("stop", "tool_call", "tool_calls"),
        ("tool_calls", "stop", "stop"),
    ],
)
def test_that_an_answer_was_cut_off_is_said_by_its_response(of_response, of_message, reason):
    output = [{**SAID[0], "finish_reason": of_message}]
    attributes = {"gen_ai.response.finish_reasons": [of_response], "openai.api.type": "responses"}
    assert genai(ASKED, output, attributes).choices[0].finish_reason == reason


def chunks(*reasons, part=None):
    parts = [{"type": "text", "content": f"{at} "} if part is None else part for at in range(len(reasons))]
    return [
        {"role": "assistant", "parts": [part], "finish_reason": reason}
        for part, reason in zip(parts, reasons, strict=True)
    ]


def test_chunks_of_a_stream_are_one_answer():
    one_reason = {"gen_ai.response.finish_reasons": ["stop"]}
    found = genai(ASKED, chunks("", "", "stop"), one_reason)
    assert [(choice.message.content, choice.message.parts) for choice in found.choices] == [("0 1 2 ", None)]
    assert (found.choices[0].finish_reason, found.stream) == ("stop", True)
    broken = genai(ASKED, chunks("", ""))
    assert [(choice.message.content, choice.finish_reason) for choice in broken.choices] == [("0 1 ", None)]
    assert broken.stream is True
    thoughts = genai(ASKED, chunks("", "stop", part={"type": "reasoning", "content": "t"}), one_reason)
    assert thoughts.choices[0].message.reasoning == "tt"
    called = [*chunks(""), {**chunks("stop", part={"type": "tool_call", "id": "c", "name": "f"})[0]}]
    (choice,) = genai(ASKED, called, one_reason).choices
    assert (choice.message.content, [tool.name for tool in choice.message.tool_calls]) == ("0 ", ["f"])


@pytest.mark.parametrize(
    ("reasons", "attributes"),
    [
        (("stop", "stop"), {"gen_ai.response.finish_reasons": ["stop"]}),
        (("", ""), {"gen_ai.response.finish_reasons": ["stop", "length"]}),
        (("", "stop"), {"gen_ai.request.choice.count": 2}),
        ((None, "stop"), {}),
    ],
)
def test_several_answers_are_no_chunks(reasons, attributes):
    assert len(genai(ASKED, chunks(*reasons), attributes).choices) == 2


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"output_tokens": 0}, None),
        ({"input_tokens": 7, "output_tokens": 0}, Usage(input_tokens=7, output_tokens=0)),
    ],
)
def test_counts_of_nothing_are_unknown(counts, usage):
    found = genai(ASKED, SAID, {f"gen_ai.usage.{name}": count for name, count in counts.items()})
    assert found.usage == usage


@pytest.mark.parametrize(
    ("recorded", "word"),
    [
        ("tool_use", "tool_calls"),
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("content_filtered", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        ("sensitive", "content_filter"),
        ("model_length", "length"),
        ("refusal", "refusal"),
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
    assert (found.tools, unread(found)) == (None, ("gen_ai.tool.definitions",))


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


@pytest.mark.parametrize("name", ["gen_ai.input.messages", "gen_ai.output.messages"])
def test_json_that_was_cut_is_unknown_and_named(name):
    whole = json.dumps(SAID)
    found = call({"gen_ai.operation.name": "chat", name: whole[:-5]})
    assert (found.input_messages, found.choices, unread(found)) == (None, None, (name,))


def test_cut_json_falls_back_on_a_less_exact_convention():
    attributes = {
        "gen_ai.input.messages": '[{"role": "us',
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "q",
    }
    found = call(attributes)
    assert found.input_messages[0].content == "q"
    assert unread(found) == ("gen_ai.input.messages",)


def test_lone_surrogates_are_replaced_and_named():
    found = call({"gen_ai.input.messages": '[{"role": "user", "content": "a\\ud83d"}]'})
    assert found.input_messages[0].content == "a�"
    assert unread(found) == ("gen_ai.input.messages",)


def test_nan_in_json_costs_only_itself():
    part = '{"type": "tool_call", "name": "f", "arguments": {"a": NaN}}'
    found = call({"gen_ai.output.messages": f'[{{"role": "assistant", "parts": [{part}]}}]'})
    assert found.choices[0].message.tool_calls[0].arguments == '{"a": NaN}'  # as Python writes it
    assert unread(found) == ()
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


def test_a_refusal_of_a_stream_that_is_written_as_a_text_is_a_refusal():
    parts = [{"type": "text", "content": ""}, {"type": "text", "content": "I cannot."}]
    said = [{"role": "assistant", "parts": parts, "finish_reason": "stop"}]
    refused = genai(ASKED, said, scope="opentelemetry.instrumentation.genai.openai").choices[0].message
    assert (refused.content, refused.refusal) == (None, "I cannot.")
    assert genai(ASKED, said).choices[0].message.content == "I cannot."


@pytest.mark.parametrize(("asked", "missing"), [(2, True), (1, False), ("no number", False)])
def test_choices_that_were_asked_for_and_not_recorded_are_a_gap(asked, missing):
    found = genai(ASKED, SAID, attributes={"gen_ai.request.choice.count": asked})
    assert [gap.field for gap in found.gaps] == ["answer[1]"] * missing


def test_a_text_beside_a_tool_call_may_be_a_thought_of_google_genai():
    said = [{"role": "assistant", "parts": [SAID[0]["parts"][0], {"type": "tool_call", "name": "f", "arguments": {}}]}]
    for thoughts, gaps in ((7, ["call"]), (0, [])):
        attributes = {"gen_ai.operation.name": "generate_content", "gen_ai.usage.reasoning_tokens": thoughts}
        recorded = span(attributes | {"gen_ai.output.messages": json.dumps(said)})
        scope = Scope(name="opentelemetry.instrumentation.google_genai", version="1.2")
        found = parse_call(msgspec.structs.replace(recorded, scope=scope))
        assert [gap.field for gap in found.gaps if gap.kind == "lossy recorder"] == gaps
