"""Tools that ran, with the turns that asked for them."""

import json

from art_otel.calls import Choice, Message, ToolCall
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, build_trajectories

ASKED = [Message(role="user", content="weather?")]


def look(call_id: str | None, city: str) -> ToolCall:
    return ToolCall(id=call_id, name="look", arguments=json.dumps({"city": city}))


def ran(builder, root, **attributes):
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    return builder.span("execute_tool look", parent=root, attributes=named | attributes)


def executions(root, *spans):
    (found,) = build_trajectories(SpanGroup(spans=[root, *spans])).trajectories
    return found.tool_calls


def chat(builder, root, *calls):
    answer = Message(role="assistant", tool_calls=calls)
    return builder.chat(root, ASKED, [Choice(index=0, message=answer, finish_reason="tool_calls")])


def test_an_execution_has_arguments_result_and_the_turn_that_asked():
    builder = SpanBuilder()
    root = builder.rollout("r")
    asked = chat(builder, root, look("c1", "Paris"), look("c2", "Rome"))
    told = {"gen_ai.tool.call.arguments": '{"city": "Rome"}', "gen_ai.tool.call.result": '{"sky": ["sun"]}'}
    tool = ran(builder, root, **{"gen_ai.tool.call.id": "c2"}, **told)
    (execution,) = executions(root, asked, tool)
    assert (execution.name, execution.call_id, execution.turn) == ("look", "c2", 0)
    assert (execution.arguments, execution.result, execution.error) == ({"city": "Rome"}, {"sky": ["sun"]}, None)
    assert (execution.start_ns, execution.end_ns, execution.span_id) == (tool.start_ns, tool.end_ns, tool.span_id)


def test_the_latest_turn_of_an_id_asked():
    builder = SpanBuilder()
    root = builder.rollout("r")
    spans = [chat(builder, root, look("c", "Paris")), chat(builder, root, look("c", "Rome"))]
    early = ran(builder, root, **{"gen_ai.tool.call.id": "c"})
    late = chat(builder, root, look("c", "Oslo"))
    (execution,) = executions(root, *spans, early, late)
    assert execution.turn == 1


def test_without_an_id_only_one_call_like_it_can_have_asked():
    builder = SpanBuilder()
    root = builder.rollout("r")
    asked = chat(builder, root, look("c1", "Paris"), look("c2", "Rome"), look("c3", "Rome"))
    paris = ran(builder, root, **{"gen_ai.tool.call.arguments": '{"city":"Paris"}'})
    again = ran(builder, root, **{"gen_ai.tool.call.arguments": '{"city":"Paris"}'})
    rome = ran(builder, root, **{"gen_ai.tool.call.arguments": '{"city":"Rome"}'})
    bare = ran(builder, root)
    assert [one.turn for one in executions(root, asked, paris, again, rome, bare)] == [0, None, None, None]


def test_a_tool_that_failed_says_why_and_one_that_runs_before_a_call_was_not_asked_by_it():
    builder = SpanBuilder()
    root = builder.rollout("r")
    early = ran(builder, root, **{"gen_ai.tool.call.id": "c1", "error.type": "TimeoutError"})
    (execution,) = executions(root, early, chat(builder, root, look("c1", "Paris")))
    assert (execution.turn, execution.error) == (None, "TimeoutError")
