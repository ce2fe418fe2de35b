"""What tool spans say: of one framework and instrumentor each, as recorded, and by the standard."""

import json

import pytest

from art_otel.conventions import ToolFacts, role_of, tool_facts
from art_otel.spans import Span
from tests.conventions.builders import span
from tests.conventions.recorded import CHECKED, records

RECORDED = {
    one.resource.attributes["service.name"]: one
    for one in records(CHECKED / "tools.jsonl")
    if isinstance(one, Span) and role_of(one) == "tool"
}
CALL_IDS = {
    "adk_native": "call_paris_72",
    "adk_native_v1": "call_paris_349",
    "langgraph_genai_openai": "call_tokyo_82",
    "langgraph_langsmith_openai": "call_paris_90",
    "langgraph_oi_openai": "call_paris_66",
    "langgraph_traceloop_anthropic": "call_tokyo_80",
    "maf_native": "call_paris_90",
    "mastra": "call_paris_363",
    "pydantic_ai_openai_v2": "call_paris_52",
    "pydantic_ai_openai_v3": "call_paris_54",
    "sk_native": "call_paris_88",
}
CITIES = {"Paris": "sunny", "Tokyo": "rainy"}


@pytest.mark.parametrize("framework", RECORDED)
def test_an_execution_as_it_was_recorded(framework):
    facts = tool_facts(RECORDED[framework])
    assert facts.name.removeprefix("W-") == "get_weather"
    assert facts.call_id == CALL_IDS.get(framework)
    city = facts.arguments if framework == "langgraph_oi_openai" else facts.arguments["city"]
    assert facts.result in (CITIES[city], {"result": CITIES[city]})


def test_every_recorded_tool_span_is_one_but_for_adks_summary():
    assert len(RECORDED) == 17
    (summary,) = [one for one in records(CHECKED / "tools.jsonl") if isinstance(one, Span) and role_of(one) != "tool"]
    assert summary.attributes["gen_ai.tool.name"] == "(merged tools)"
    assert role_of(summary) == "other"


def test_the_standard():
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c",
        "gen_ai.tool.call.arguments": '{"at": [1]}',
        "gen_ai.tool.call.result": "[not JSON, but text]",
    }
    facts = tool_facts(span(attributes, name="execute_tool look", kind="internal"))
    assert facts == ToolFacts(name="look", call_id="c", arguments={"at": [1]}, result="[not JSON, but text]")
    structured = attributes | {"gen_ai.tool.call.arguments": {"at": [1]}, "gen_ai.tool.call.result": {"output": "x"}}
    assert tool_facts(span(structured)) == ToolFacts(
        name="look", call_id="c", arguments={"at": [1]}, result={"output": "x"}
    )


def test_what_nobody_recorded_is_unknown():
    bare = span({"gen_ai.operation.name": "execute_tool"}, name="execute_tool look")
    assert tool_facts(bare) == ToolFacts(name="look")


@pytest.mark.parametrize(
    "value", [{"inputs": 1}, {"kwargs": {"a": 1}, "args": [2]}, {"kwargs": {}, "b": 1}, "text", []]
)
def test_an_apps_own_arguments_stay_as_they_are(value):
    recorded = value if isinstance(value, str) else json.dumps(value)
    assert tool_facts(span({"gen_ai.tool.call.arguments": recorded})).arguments == value


@pytest.mark.parametrize(
    "value", [{"output": 1}, {"lc": 1}, {"type": "tool", "content": "x"}, {"type": "a", "data": 1}]
)
def test_an_apps_own_result_stays_as_it_is(value):
    assert tool_facts(span({"gen_ai.tool.call.result": json.dumps(value)})).result == value
