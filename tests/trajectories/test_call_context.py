"""What the spans above a call say of it: its agent, its step, the state of the environment."""

import msgspec
import pytest

from art_otel.spans import Resource, Scope, Span
from art_otel.trajectories import SpanGroup, build_trajectories
from tests.operations import operations


def nested_rollouts(depth: int, *, in_calls: bool) -> SpanGroup:
    """Each next rollout in the last, or in its call, as a context that leaks nests them."""
    spans: list[Span] = []
    parent = None
    for number in range(depth):
        root, call = f"{2 * number + 1:016x}", f"{2 * number + 2:016x}"
        own = {"art.rollout.id": f"r{number:05}", "art.rollout.name": "x", "agent.name": f"agent {number}"}
        asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        times = {"trace_id": "1" * 32, "start_ns": number + 1, "end_ns": 1_000_000}
        spans.append(Span(span_id=root, parent_span_id=parent, name="rollout x", attributes=own, **times))
        spans.append(Span(span_id=call, parent_span_id=root, name="chat m", kind="client", attributes=asked, **times))
        parent = call if in_calls else root
    return SpanGroup(spans=spans)


@pytest.mark.parametrize("in_calls", [False, True])
def test_nested_rollouts_take_linear_time(in_calls):
    small, large = (
        operations(build_trajectories, nested_rollouts(depth, in_calls=in_calls)) / depth for depth in (100, 800)
    )
    assert large < 1.2 * small


@pytest.mark.parametrize("in_calls", [False, True])
def test_nested_rollouts_have_a_call_each_by_the_nearest_agent(in_calls):
    found = build_trajectories(nested_rollouts(20, in_calls=in_calls)).trajectories
    assert [[call.agent for call in one.calls] for one in found] == [[f"agent {number}"] for number in range(20)]


def steps_with_calls(**own: str) -> SpanGroup:
    state = {"art.step.index": 0, "art.env_state": '{"board": ["x"]}', "art.extra": '{"seed": 1}'}
    times = {"trace_id": "1" * 32, "start_ns": 1, "end_ns": 1_000_000}
    spans = [Span(span_id=f"{1:016x}", name="step 0", attributes=state, **times)]
    for number in (2, 3, 4):
        asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **(own if number == 4 else {})}
        spans.append(
            Span(span_id=f"{number:016x}", parent_span_id=f"{1:016x}", name="chat m", attributes=asked, **times)
        )
    return SpanGroup(spans=spans)


def test_the_calls_of_a_step_have_what_it_says_and_their_own_wins():
    (trajectory,) = build_trajectories(steps_with_calls(**{"art.env_state": '{"turn": 2}'})).trajectories
    assert [call.env_state for call in trajectory.calls] == [{"board": ["x"]}] * 2 + [{"board": ["x"], "turn": 2}]
    assert [call.extra for call in trajectory.calls] == [{"seed": 1}] * 3


def test_changing_what_a_step_says_for_one_call_changes_no_other():
    first, second, _ = build_trajectories(steps_with_calls()).trajectories[0].calls
    first.env_state["board"].append("o")
    first.extra["seed"] = 2
    assert (second.env_state, second.extra) == ({"board": ["x"]}, {"seed": 1})


def chat(number: int, parent: int, start_ns: int = 9, **own: object) -> Span:
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **own}
    place = {"trace_id": "1" * 32, "span_id": f"{number:016x}", "parent_span_id": f"{parent:016x}"}
    return Span(name="chat m", kind="client", attributes=asked, start_ns=start_ns, end_ns=1_000_000, **place)


def around(number: int, parent: int | None, resource: Resource | None = None, **own: object) -> Span:
    parent_id = None if parent is None else f"{parent:016x}"
    place = {"trace_id": "1" * 32, "span_id": f"{number:016x}", "parent_span_id": parent_id}
    times = {"start_ns": number, "end_ns": 1_000_000}
    return Span(name="x", attributes=own, resource=resource or Resource(), **place, **times)


@pytest.mark.parametrize(
    ("mark", "label"),
    [
        ("judge", "judge"),
        (True, "untrained"),
        ("True", "untrained"),  # a store that makes a boolean a text
        (False, None),
        ("false", None),
        ("", None),
        (7, None),
    ],
)
def test_a_mark_says_what_the_calls_are_for(mark, label):
    root = around(1, None, **{"art.rollout.id": "r", "art.rollout.name": "x", "art.untrained": mark})
    (trajectory,) = build_trajectories(SpanGroup(spans=[root, around(2, 1), chat(3, 2)])).trajectories
    assert [call.marked_untrained for call in trajectory.calls] == [label]
    assert trajectory.metadata == {}


def test_the_nearest_mark_counts_also_of_a_rollout_further_out_and_of_a_resource():
    judging = Resource(attributes={"art.untrained": "judge service"})
    spans = [
        around(1, None, **{"art.rollout.id": "outer", "art.rollout.name": "x"}),
        chat(2, 1),
        chat(3, 1, **{"art.untrained": "title"}),
        around(4, 1, **{"art.untrained": "judge"}),
        around(5, 4, **{"art.untrained": "false"}),
        around(6, 5, **{"art.rollout.id": "inner", "art.rollout.name": "x"}),
        chat(7, 6),
        around(8, 6, **{"art.untrained": "summary"}),
        chat(10, 8),
        around(11, 1, judging),
        chat(12, 11),
    ]
    assembled = build_trajectories(SpanGroup(spans=spans)).trajectories
    assert {one.rollout_id: [call.marked_untrained for call in one.calls] for one in assembled} == {
        "outer": [None, "title", "judge service"],
        "inner": ["judge", "summary"],
    }


def test_a_call_is_marked_where_any_recording_of_it_is():
    """A gateway's span stands elsewhere than the app's span of the same call."""
    same = {"gen_ai.response.id": "chatcmpl-1"}
    root = around(1, None, **{"art.rollout.id": "r", "art.rollout.name": "x"})
    spans = [root, around(2, 1, **{"art.untrained": "judge"}), chat(3, 2, 10, **same), chat(4, 1, 9, **same)]
    spans[-1] = msgspec.structs.replace(spans[-1], scope=Scope(name="art_otel.gateway"))
    (call,) = build_trajectories(SpanGroup(spans=spans)).trajectories[0].calls
    assert (call.span_id, call.marked_untrained) == (f"{4:016x}", "judge")


def agents(**own: str) -> list[str | None]:
    """The agents of a call in an agent, in an agent's tool, and outside."""
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **own}
    planner = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    times = {"trace_id": "1" * 32, "end_ns": 1_000_000}
    spans = [
        Span(span_id=f"{1:016x}", name="rollout x", attributes={"art.rollout.id": "r"}, start_ns=1, **times),
        Span(span_id=f"{2:016x}", parent_span_id=f"{1:016x}", name="x", attributes=planner, start_ns=2, **times),
        Span(span_id=f"{3:016x}", parent_span_id=f"{2:016x}", name="tool", start_ns=3, **times),
    ]
    for number, parent in ((4, 2), (5, 3), (6, 1)):
        place = {"span_id": f"{number:016x}", "parent_span_id": f"{parent:016x}"}
        spans.append(Span(name="chat m", kind="client", attributes=asked, start_ns=number, **place, **times))
    (trajectory,) = build_trajectories(SpanGroup(spans=spans)).trajectories
    return [call.agent for call in trajectory.calls]


def test_a_call_is_of_the_nearest_agent_above_it():
    assert agents() == ["planner", "planner", None]


def test_a_call_is_of_the_agent_that_its_own_span_names():
    assert agents(**{"gen_ai.agent.name": "critic"}) == ["critic"] * 3


TOOLS = '[{"type": "function", "name": "look", "parameters": {"type": "object"}}]'


def calls_of_an_agent(**known: str) -> SpanGroup:
    """A call of an agent, one by another recorder, and one inside of its tool."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.definitions": TOOLS}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **known}
    times = {"trace_id": "1" * 32, "start_ns": 1, "end_ns": 1_000_000}
    framework, client = Scope(name="framework"), Scope(name="client")
    made = [
        (1, None, "invoke_agent a", agent, framework),
        (2, 1, "chat m", asked, framework),
        (3, 1, "chat m", asked, client),
        (4, 1, "execute_tool look", {"gen_ai.operation.name": "execute_tool"}, framework),
        (5, 4, "chat m", asked, framework),
    ]
    return SpanGroup(
        spans=[
            Span(
                span_id=f"{number:016x}",
                parent_span_id=None if parent is None else f"{parent:016x}",
                name=name,
                attributes=attributes,
                scope=scope,
                **times,
            )
            for number, parent, name, attributes, scope in made
        ]
    )


def test_tools_of_an_agent_are_those_of_the_calls_that_its_recorder_made_for_it():
    (trajectory,) = build_trajectories(calls_of_an_agent()).trajectories
    tools = {int(call.span_id, 16): call.tools for call in trajectory.calls}
    assert [bool(tools[number]) for number in (2, 3, 5)] == [True, False, False]
    (trajectory,) = build_trajectories(calls_of_an_agent(**{"gen_ai.tool.definitions": "[]"})).trajectories
    assert [call.tools for call in trajectory.calls] == [()] * 3
