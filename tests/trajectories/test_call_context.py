"""What the spans above a call say of it: its agent, its step, the state of the environment."""

import json

import msgspec
import pytest

from art_otel.spans import Scope, Span
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
