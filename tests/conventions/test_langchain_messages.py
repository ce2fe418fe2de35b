"""LangChain's messages: what it sent and what was sampled, where its own objects say something else."""

import json

import pytest

from art_otel.calls import Message
from tests.conventions.builders import call
from tests.gaps import kinds

HUMAN = {"type": "human", "content": "q", "name": "alice"}


def constructed(**fields):
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema"], "kwargs": fields}


def openinference(prompt, answer, reason="stop", response_id="chatcmpl-1", **attributes):
    answered = {"type": "AIMessageChunk", "content": "", "response_metadata": {"id": response_id}, **answer}
    generation = {"message": constructed(**answered), "generation_info": {"finish_reason": reason}}
    known = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps({"messages": [[constructed(**one) for one in prompt]]}),
        "input.mime_type": "application/json",
        "output.value": json.dumps({"generations": [[generation]]}),
        "output.mime_type": "application/json",
    }
    return call({**known, **attributes}, kind="internal", scope="openinference.instrumentation.langchain")


def mlflow(prompt, answer, reason="stop", response_id="chatcmpl-1"):
    metadata = {"finish_reason": reason, "id": response_id}
    answered = {"type": "AIMessageChunk", "content": "", "response_metadata": metadata, **answer}
    generation = {"message": answered, "generation_info": {"finish_reason": reason}}
    asked = [{"additional_kwargs": {}, **one} for one in prompt]
    known = {
        "mlflow.spanType": json.dumps("CHAT_MODEL"),
        "mlflow.spanInputs": json.dumps([asked]),
        "mlflow.spanOutputs": json.dumps({"generations": [[generation]]}),
    }
    return call(known, kind="internal")


EVERYWHERE = pytest.mark.parametrize("record", [openinference, mlflow])


@EVERYWHERE
def test_arguments_that_a_stream_cut_are_those_of_its_chunks(record):
    parsed = {"name": "look", "args": {"city": "Zü"}, "id": "c", "type": "tool_call"}
    chunk = {**parsed, "args": '{"city": "Zü', "index": 0, "type": "tool_call_chunk"}
    found = record([HUMAN], {"tool_calls": [parsed], "tool_call_chunks": [chunk]}, reason="length")
    (sampled,) = found.choices[0].message.tool_calls
    assert (sampled.arguments, sampled.exact) == ('{"city": "Zü', True)
    assert kinds(found) == ()
    sent = record([HUMAN, {"type": "ai", "content": "", "tool_calls": [parsed], "tool_call_chunks": [chunk]}], {})
    assert sent.input_messages[1].tool_calls[0].arguments == '{"city": "Zü"}'


@EVERYWHERE
def test_a_refusal_beside_the_content_was_sampled_and_is_not_sent(record):
    refused = {"content": "", "additional_kwargs": {"refusal": "No."}}
    found = record([HUMAN, {"type": "ai", **refused}], refused)
    assert found.input_messages[1] == Message(role="assistant", content="")
    assert found.choices[0].message.refusal == "No."


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ({}, "alice"),
        ({"response_id": "resp_1"}, None),
        ({"response_id": None, "llm.provider": "anthropic"}, None),
    ],
    ids=["Chat Completions", "Responses", "Anthropic"],
)
def test_names_are_sent_only_where_the_api_has_them(where, name):
    assert openinference([HUMAN], {"content": "a"}, **where).input_messages[0].name == name


def test_infinity_in_a_value_that_is_whole_is_not_cut():
    parsed = {"name": "look", "args": {"limit": float("inf")}, "id": "c", "type": "tool_call"}
    content = [{"type": "function_call", "name": "look", "arguments": '{"limit": 1e400}', "call_id": "c"}]
    found = openinference([HUMAN, {"type": "ai", "content": content, "tool_calls": [parsed]}], {"content": "a"})
    assert found.input_messages[1].tool_calls[0].arguments == '{"limit": 1e400}'
    assert kinds(found) == ()


@pytest.mark.parametrize(
    ("reason", "n", "doubted"),
    [
        ("stoplength", 2, ("answer[0]", "answer[1]")),
        ("stoplength", None, ("answer[0]",)),
        ("stopstop", 2, ("answer[0]", "answer[1]")),
        ("stopstop", None, ()),
        ("length", None, ()),
    ],
)
def test_choices_of_a_stream_that_were_joined_are_doubted(reason, n, doubted):
    asked = {} if n is None else {"llm.invocation_parameters": json.dumps({"n": n})}
    found = openinference([HUMAN], {"content": "onetwo"}, reason=reason, **asked)
    assert tuple(sorted(gap.field for gap in found.gaps)) == doubted
    assert set(kinds(found)) <= {"lossy recorder"}
