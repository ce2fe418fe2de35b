"""What shows that content is not what was sent and sampled is a doubt, by its name."""

import json

import pytest
from msgspec import structs

from art_otel.calls import InferenceCall
from art_otel.conventions import merge_calls
from tests.conventions.builders import call, genai
from tests.gaps import kinds


def text(content: str) -> dict:
    return {"type": "text", "content": content}


def message(role: str, *parts: dict) -> dict:
    return {"role": role, "parts": list(parts)}


def calls(**arguments: object) -> dict:
    return {"type": "tool_call", "id": "c", "name": "look", "arguments": arguments}


def chat(
    prompt: list[dict], *answer: dict, scope: str = "app", version: str = "", **attributes: object
) -> InferenceCall:
    answered = [{**message("assistant", *answer), "finish_reason": "stop"}]
    return genai(prompt, answered, attributes, scope=scope, version=version)


ASKED = [message("user", text("q"))]


def doubts(call: InferenceCall) -> tuple[str, ...]:
    return kinds(call)


def test_what_is_whole_is_not_doubted():
    assert doubts(chat(ASKED, text("a"), calls(x=1))) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("anthropic.content.truncated", True),
        ("gen_ai.prompt.truncated", "true"),
        ("gen_ai.prompt.truncated_messages", 2),
        ("app.output_truncated", True),
    ],
)
def test_a_recorder_may_say_that_it_cut(name, value):
    assert doubts(chat(ASKED, text("a"), **{name: value})) == ("cut",)


@pytest.mark.parametrize(
    ("name", "value"), [("anthropic.content.truncated", False), ("x.truncated_messages", 0), ("truncation", "auto")]
)
def test_a_recorder_may_say_that_it_did_not_cut(name, value):
    assert doubts(chat(ASKED, text("a"), **{name: value})) == ()


@pytest.mark.parametrize("mark", ["…[truncated]", "... [truncated]", "[TRUNCATED]", "<truncated>"])
def test_a_mark_at_the_end_of_an_answer_shows_that_it_was_cut(mark):
    assert doubts(chat(ASKED, text(f"a{mark}"))) == ("cut",)


def test_tools_and_users_may_write_such_marks():
    prompt = [message("user", text("log: … [truncated]")), message("assistant", calls())]
    answered = message("tool", {"type": "tool_call_response", "id": "c", "response": "line [truncated]"})
    assert doubts(chat([*prompt, answered], text("a"))) == ()


def test_content_that_langfuse_replaced():
    assert doubts(chat([message("user", text("<truncated due to size exceeding limit>"))], text("a"))) == ("cut",)


@pytest.mark.parametrize("prompt", [True, False])
def test_a_part_of_an_unknown_type(prompt):
    part = {"type": "hologram", "content": "x"}
    found = chat([message("user", text("q"), part)], text("a")) if prompt else chat(ASKED, text("a"), part)
    assert doubts(found) == ("not understood",)


@pytest.mark.parametrize("kind", ["image", "web_search_call", "server_tool_use", "redacted_thinking", "video"])
def test_a_part_that_some_api_documents_is_known(kind):
    assert doubts(chat(ASKED, text("a"), {"type": kind, "url": "x"})) == ()


def flattened(prefix: str, fields: dict[str, object], **more: object) -> InferenceCall:
    attributes = {f"llm.{prefix}_messages.0.message.{name}": value for name, value in fields.items()}
    return call({"openinference.span.kind": "LLM", **attributes, **more}, kind="internal")


TOOL = {"tool_call.function.name": "look", "tool_call.function.arguments": "{}"}


def contents(*positions: int) -> dict[str, object]:
    return {f"contents.{at}.message_content.{name}": name for at in positions for name in ("type", "text")}


def tool_calls(*positions: int) -> dict[str, object]:
    return {f"tool_calls.{at}.{name}": value for at in positions for name, value in TOOL.items()}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({**contents(0, 1)}, ()),
        ({**contents(1)}, ("lossy recorder",)),
        ({**contents(0, 2)}, ("lossy recorder",)),
        ({**contents(0, 1), **tool_calls(0)}, ()),
        ({**contents(1), **tool_calls(0)}, ("lossy recorder",)),
        ({**contents(0), **tool_calls(1, 2)}, ()),
        ({**contents(0), **tool_calls(2)}, ("lossy recorder",)),
        ({"content": "a", **tool_calls(1)}, ("lossy recorder",)),
    ],
    ids=["whole", "no first", "a gap", "two lists", "a hole in one", "one numbering", "a gap in it", "a call lost"],
)
def test_a_list_with_a_hole_is_read_and_doubted(parts, expected):
    parts = {name: "text" if value == "type" else value for name, value in parts.items()}
    found = flattened("output", {"role": "assistant", **parts})
    assert kinds(found) == expected
    (choice,) = found.choices or ()
    assert choice.message.content
    assert len(choice.message.tool_calls) == sum(name.endswith("function.name") for name in parts)


BODY = {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "a"}}]}


@pytest.mark.parametrize(("reason", "expected"), [("tool_calls", ()), ("stop", ("lossy recorder",))])
def test_a_body_without_the_tool_calls_of_its_attributes(reason, expected):
    (choice,) = BODY["choices"]
    body = json.dumps({"choices": [{**choice, "finish_reason": reason}]})
    fields = {"role": "assistant", "content": "a", **tool_calls(0)}
    found = flattened("output", fields, **{"output.value": body, "output.mime_type": "application/json"})
    assert [called.name for called in (found.choices or ())[0].message.tool_calls] == ["look"]
    assert kinds(found) == expected


@pytest.mark.parametrize(
    ("scope", "answer", "expected"),
    [
        ("opentelemetry.instrumentation.botocore.bedrock-runtime", [calls()], ("lossy recorder",)),
        ("opentelemetry.instrumentation.botocore.bedrock-runtime", [text("a")], ()),
        ("semantic_kernel.utils.telemetry.model_diagnostics.decorators", [calls()], ("lossy recorder",)),
        ("gcp.vertex.agent", [text("thought"), text("a")], ("lossy recorder",)),
        ("gcp.vertex.agent", [text("a"), calls()], ()),
        ("app", [text("one"), text("two"), calls()], ()),
    ],
)
def test_a_recorder_that_is_known_to_lose_or_rewrite(scope, answer, expected):
    assert doubts(chat(ASKED, *answer, scope=scope)) == expected


RESPONSES = {"gen_ai.response.id": "resp_1"}


@pytest.mark.parametrize(("version", "expected"), [("1.2b0", ("lossy recorder",)), ("1.3b0", ())])
def test_genai_langchain_lost_the_text_beside_calls(version, expected):
    scope = "opentelemetry.instrumentation.genai.langchain"
    assert doubts(chat(ASKED, calls(), scope=scope, version=version)) == expected


@pytest.mark.parametrize(("attributes", "expected"), [(RESPONSES, ("lossy recorder",)), ({}, ())])
def test_traceloops_javascript_loses_instructions_and_calls_of_responses(attributes, expected):
    assert doubts(chat(ASKED, text("a"), scope="@traceloop/instrumentation-openai", **attributes)) == expected


def test_a_stream_that_was_printed_is_no_answer():
    recorded = {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": '{"messages": [{"role": "user", "content": "q"}]}',
        "mlflow.spanOutputs": '"<anthropic.Stream object at 0x7f04c186e5d0>"',
    }
    found = call(recorded)
    assert found.choices is None
    assert "lossy recorder" in doubts(found)


def test_arguments_that_a_stream_of_bedrock_lost():
    scope = "opentelemetry.instrumentation.bedrock"
    definitions = json.dumps([{"name": "look", "parameters": {}}])
    assert doubts(chat(ASKED, text("a"), calls(), scope=scope)) == ("lossy recorder",)
    assert doubts(chat(ASKED, text("a"), calls(x=1), scope=scope)) == ()
    assert doubts(chat(ASKED, text("a"), calls(), scope=scope, **{"gen_ai.tool.definitions": definitions})) == ()


def test_a_framework_that_lost_the_tool_calls_of_a_prompt():
    answered = message("tool", {"type": "tool_call_response", "id": "c", "response": "sun"})
    lost = [*ASKED, message("assistant", text("Let me look.")), answered]
    kept = [*ASKED, message("assistant", text("Let me look."), calls()), answered]
    scope = "opentelemetry.instrumentation.llamaindex"
    assert doubts(chat(lost, text("a"), scope=scope)) == ("lossy recorder",)
    assert doubts(chat(kept, text("a"), scope=scope)) == ()


def test_the_function_calls_and_refusals_that_openllmetry_left_out_of_a_prompt():
    prompt = [*ASKED, message("assistant"), *ASKED]
    scope, sent = "opentelemetry.instrumentation.openai.v1", {"role": "assistant", "refusal": "No."}
    assert doubts(chat(prompt, text("a"), scope=scope)) == ("lossy recorder",)
    request = json.dumps([{"role": "user", "content": "q"}, sent, {"role": "user", "content": "q"}])
    assert doubts(chat(prompt, text("a"), scope=scope, **{"art.request.messages": request})) == ()


THOUGHT = {"type": "thinking", "content": "Hm."}
TAGGED = {"type": "thinking", "content": "\nHm.\n"}
YES, BEFORE = ({"type": "text", "content": text} for text in ("Yes.", "Well."))


@pytest.mark.parametrize(
    ("said", "answered", "expected"),
    [
        ([THOUGHT, YES], [THOUGHT, YES], ()),
        ([TAGGED, {"type": "text", "content": "\n\nYes."}], [YES], ("prompt",)),
        ([BEFORE, THOUGHT, YES], [YES], ("prompt",)),
        ([YES], [TAGGED, YES], ()),
        ([YES], [BEFORE, THOUGHT, YES], ("call",)),
    ],
)
def test_pydantic_ai_sends_reasoning_in_tags_that_it_found_in_tags(said, answered, expected):
    prompt = [{"role": role, "parts": parts} for role, parts in (("user", [YES]), ("assistant", said), ("user", [YES]))]
    answer = [{"role": "assistant", "parts": answered, "finish_reason": "stop"}]
    judged = genai(prompt, answer, scope="pydantic-ai", version="2.68.0")
    assert tuple(gap.field for gap in judged.gaps) == expected


@pytest.mark.parametrize(
    ("version", "attributes", "stream"),
    [
        ("1.44.0", {}, True),
        ("1.44.0", {"gen_ai.response.finish_reasons": ["stop"]}, None),
        ("1.44.0", {"gen_ai.usage.output_tokens": 3}, None),
        ("0.4.11", {}, None),
        ("0.4.11", {"gen_ai.client.operation.time_to_first_chunk": 0.1}, True),
    ],
)
def test_an_answer_that_pydantic_ai_neither_counted_nor_finished_is_a_stream_that_was_left(version, attributes, stream):
    answer = [{"role": "assistant", "parts": [YES]}]
    assert genai([], answer, attributes=attributes, scope="pydantic-ai", version=version).stream is stream


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_nobody_asks_without_content(role):
    """A collector that takes content out leaves the role."""
    assert doubts(chat([message(role), message("user", text("q"))], text("a"))) == ("off",)
    assert doubts(chat([message(role, text("")), *ASKED], text("a"))) == ()


def test_a_text_part_without_its_text_was_taken_out():
    part = "llm.input_messages.0.message.contents.0.message_content"
    known = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        f"{part}.type": "text",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "a",
    }
    assert "off" in doubts(call(known))
    assert doubts(call({**known, f"{part}.text": ""})) == ()


def test_litellm_writes_items_that_it_does_not_know_as_empty_messages_of_users():
    lost, whole = [*ASKED, message("user", text(""))], [*ASKED, message("assistant", text("a")), *ASKED]
    response = {"gen_ai.response.id": "resp_1"}
    assert doubts(chat(lost, text("a"), scope="litellm", **response)) == ("lossy recorder",)
    assert doubts(chat(whole, text("a"), scope="litellm", **response)) == ()
    assert doubts(chat(lost, text("a"), scope="litellm")) == ()


def test_functions_without_parameters_are_all_that_livekit_writes():
    bare = [{"type": "function", "name": "look", "description": "Looks."}]
    whole = [{**bare[0], "parameters": {"type": "object", "properties": {}}}]
    for tools, expected in ((bare, ("lossy recorder",)), (whole, ())):
        recorded = chat(ASKED, calls(x=1), scope="livekit-agents", **{"gen_ai.tool.definitions": json.dumps(tools)})
        assert (doubts(recorded), {gap.field for gap in recorded.gaps}) == (expected, {"tools"} if expected else set())


CALLED = [*ASKED, message("assistant", calls(x=1)), message("tool", {"type": "tool_call_response", "id": "c"})]


@pytest.mark.parametrize(
    ("prompt", "answer", "fields"),
    [(ASKED, text("a"), set()), (ASKED, calls(x=1), {"tools"}), (CALLED, text("a"), {"tools"})],
)
def test_the_definitions_that_anthropics_client_does_not_write(prompt, answer, fields):
    recorded = chat(prompt, answer, scope="com.anthropic.sdk.python")
    assert {gap.field for gap in recorded.gaps} == fields
    definitions = {"gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "look", "parameters": {}}])}
    others = chat(prompt, answer, **definitions), structs.replace(chat(prompt, **definitions), choices=None)
    for other in others:
        assert merge_calls([other, recorded]).gaps == ()
        assert len(merge_calls([other, recorded]).tools) == 1


def test_a_role_that_the_recorder_does_not_know():
    """OpenLLMetry's LangChain writes `unknown` for what it has no word for: for answers, too, which are the model's."""
    prompt = {"gen_ai.prompt.0.role": "unknown", "gen_ai.prompt.0.content": "q"}
    known = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q"}
    answer = {"gen_ai.completion.0.role": "unknown", "gen_ai.completion.0.content": "a"}
    for asked, expected in ((prompt, ("not understood",)), (known, ())):
        recorded = call({"llm.request.type": "chat", **asked, **answer})
        assert (recorded.choices[0].message.role, doubts(recorded)) == ("assistant", expected)


def test_the_tool_calls_of_several_choices_that_litellm_numbers_alike():
    choices = {
        f"gen_ai.completion.{n}.{name}": value
        for n in (0, 1)
        for name, value in (("role", "assistant"), ("function_call.name", "look"), ("function_call.arguments", "{}"))
    }
    assert doubts(call({"llm.request.type": "chat", **choices}, scope="litellm")) == ("lossy recorder",)


PARTS = [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    ("parts", "expected"), [(PARTS, ("lossy recorder",)), ([{**PARTS[0], "id": "lc_1"}], ()), ([{"x": 1}], ())]
)
def test_an_answer_of_a_tool_that_is_the_json_of_parts(parts, expected):
    """LangChain's own parts, as of tools of MCP, have its ids; a text may be such JSON, too."""
    answer = {"type": "tool_call_response", "id": "c", "response": json.dumps(parts)}
    prompt = [*ASKED, message("assistant", calls()), message("tool", answer)]
    recorded = chat(prompt, text("a"), scope="opentelemetry.instrumentation.langchain")
    assert recorded.input_messages[-1].content == ("a" if "type" in parts[0] else json.dumps(parts))
    assert doubts(recorded) == expected


@pytest.mark.parametrize(
    ("reason", "arguments", "known", "expected"),
    [
        ("length", {"city": "Bern"}, {}, ("lossy recorder",)),
        ("length", '{"city": "Be', {}, ()),
        ("tool_calls", {"city": "Bern"}, {}, ()),
        ("length", {"city": "Bern"}, {"gen_ai.provider.name": "anthropic"}, ()),
        (
            "length",
            {"city": "Bern"},
            {"gen_ai.provider.name": "anthropic", "gen_ai.request.stream": True},
            ("lossy recorder",),
        ),
    ],
    ids=["cut", "as sampled", "whole", "an API with values", "a stream of it"],
)
def test_arguments_that_were_cut_are_no_json(reason, arguments, known, expected):
    part = {"type": "tool_call", "id": "c", "name": "look", "arguments": arguments}
    recorded = genai(ASKED, [{**message("assistant", part), "finish_reason": reason}], known)
    assert doubts(recorded) == expected


NOTHING_COUNTED = {"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}


def test_an_empty_answer_of_which_nothing_was_counted_is_none():
    assert doubts(chat(ASKED, **NOTHING_COUNTED)) == ("off",)
    assert doubts(chat(ASKED, text("a"), **NOTHING_COUNTED)) == ()
    assert doubts(chat(ASKED, **{**NOTHING_COUNTED, "gen_ai.usage.input_tokens": 7})) == ()
    assert doubts(chat(ASKED, **{**NOTHING_COUNTED, "error.type": "500"})) == ()


def test_strands_sends_something_else_than_an_empty_answer():
    prompt = [*ASKED, message("assistant"), *ASKED]
    assert doubts(chat(prompt, text("a"), scope="strands.telemetry.tracer")) == ("lossy recorder",)
    assert doubts(chat(ASKED, text("a"), scope="strands.telemetry.tracer")) == ()


@pytest.mark.parametrize(("thoughts", "expected"), [(3, ("lossy recorder",)), (0, ())])
def test_thoughts_may_be_among_the_chunks_of_the_adk(thoughts, expected):
    said = [
        {**message("assistant", text(piece)), "finish_reason": reason} for piece, reason in (("t", ""), ("a", "stop"))
    ]
    counted = {"gen_ai.usage.output_tokens": 4, "gen_ai.usage.reasoning.output_tokens": thoughts}
    assert doubts(genai(ASKED, said, counted, scope="gcp.vertex.agent")) == expected
