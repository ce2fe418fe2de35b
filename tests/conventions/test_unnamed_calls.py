"""Calls that name no operation, or one that nobody defined: what else shows that they are calls."""

import json

import pytest

from art_otel.calls import Choice, Message
from art_otel.conventions import role_of
from art_otel.testing import SpanBuilder
from art_otel.trajectories.build import SpanGroup, build_trajectories
from tests.conventions.builders import span
from tests.conversions import convert_spans
from tests.dumps import make_span

ASKED = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "q"}]}])
ANSWERED = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"}])
MODEL = {"gen_ai.request.model": "m"}
MESSAGES = {**MODEL, "gen_ai.input.messages": ASKED, "gen_ai.output.messages": ANSWERED}
FLATTENED = {**MODEL, "gen_ai.prompt.0.content": "q", "gen_ai.completion.0.content": "a"}


def unknown(**others):
    return {"gen_ai.operation.name": "llm_request", **others}


@pytest.mark.parametrize(
    ("attributes", "kind", "role"),
    [
        (unknown(**{"llm.request.type": "chat"}), "client", "inference"),
        (unknown(**{"llm.request.type": "embedding"}), "client", "embeddings"),
        (unknown(**{"openinference.span.kind": "LLM"}), "internal", "inference"),
        (unknown(**{"openinference.span.kind": "CHAIN"} | MESSAGES), "internal", "other"),
        (unknown(**{"traceloop.span.kind": "workflow"} | MESSAGES), "client", "other"),
        (unknown(**{"lmnr.span.type": "LLM"}), "internal", "inference"),
        (unknown(**MESSAGES), "client", "inference"),
        (unknown(**FLATTENED), "client", "inference"),
        (unknown(**MESSAGES), "internal", "other"),
        (unknown(**MODEL), "client", "other"),
        ({"gen_ai.operation.name": "invoke_workflow", **MESSAGES}, "client", "other"),
        ({"gen_ai.operation.name": "plan", **MESSAGES}, "internal", "other"),
        ({"gen_ai.operation.name": "agent_step", "openinference.span.kind": "LLM"}, "internal", "other"),
        ({"lmnr.span.type": "LLM"}, "internal", "inference"),
        ({"lmnr.span.type": "TOOL"}, "internal", "tool"),
        ({"lmnr.span.type": "DEFAULT"}, "internal", "other"),
        (MESSAGES, "internal", "inference"),
        (MESSAGES, "server", "inference"),
        (FLATTENED, "internal", "inference"),
        (MODEL, "internal", "other"),
        ({**MODEL, "gen_ai.input.messages": ASKED}, "internal", "other"),
        ({**MESSAGES, "gen_ai.agent.name": "planner"}, "internal", "other"),
        ({"gen_ai.input.messages": ASKED, "gen_ai.output.messages": ANSWERED}, "internal", "other"),
    ],
)
def test_the_role_of_a_span_without_a_known_operation(attributes, kind, role):
    assert role_of(span(attributes, name="ask", kind=kind)) == role


def test_a_request_of_an_apps_own_that_failed_has_no_answer():
    failed = {**MODEL, "gen_ai.input.messages": ASKED}
    assert role_of(span(failed, name="ask", kind="internal", status="error")) == "inference"


def test_an_apps_own_span_around_calls_is_their_run():
    builder = SpanBuilder()
    root = builder.span("GET /")
    run = builder.span("run", parent=root, kind="internal", attributes=MESSAGES)
    asked, answer = Message(role="user", content="q"), Message(role="assistant", content="b")
    call = builder.chat(run, [asked], [Choice(index=0, message=answer, finish_reason="stop")])
    assert recorded_calls(root, run, call) == [call.span_id]
    assert recorded_calls(root, run) == [run.span_id]


def recorded_calls(*spans):
    (trajectory,) = build_trajectories(SpanGroup(spans=spans)).trajectories
    return [one.span_id for one in trajectory.calls]


def test_an_apps_own_span_that_lacks_its_messages_is_told_what_it_needs(tmp_path):
    _, report = convert_spans(tmp_path, make_span(1, attributes=MODEL))
    assert any("gen_ai.operation.name=chat" in hint and "gen_ai.input.messages" in hint for hint in report.hints)
