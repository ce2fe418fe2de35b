"""Names and texts that are said once and meant for many: whole while there is budget, then left out and counted."""

import json

import pytest

from art_otel.spans import Quarantined, Resource, Span
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.limits import MAX_OF_NAME, MAX_REPEATED

TRACE = "1" * 32
MANY = 100
LONG = "x" * (MAX_REPEATED // (MANY - 10))  # there is budget for 90 of 100


def span(number: int, parent: int | None = None, trace: str = TRACE, **fields) -> Span:
    above = None if parent is None else f"{parent:016x}"
    times = {"start_ns": number, "end_ns": 1_000_000}
    known = {"trace_id": trace, "span_id": f"{number:016x}", "parent_span_id": above, "name": "work"}
    return Span(**(known | times | fields))


def call(number: int, parent: int | None = None, **fields) -> Span:
    message = {"role": "user", "parts": [{"type": "text", "content": str(number)}]}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps([message])}
    return span(number, parent, attributes=asked, **fields)


def one(spans: list[Span]):
    (trajectory,) = build_trajectories(SpanGroup(spans=spans)).trajectories
    return trajectory


@pytest.mark.parametrize(
    ("said", "field", "name"),
    [
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": LONG}, "agent", "gen_ai.agent.name"),
        ({"art.rollout.id": "r", "art.policy.version": LONG}, "policy_version", "art.policy.version"),
    ],
)
def test_a_long_name_is_that_of_as_many_calls_as_there_is_room_for(said, field, name):
    trajectory = one([span(1, attributes=said), *(call(number, 1) for number in range(2, MANY + 2))])
    assert [getattr(known, field) for known in trajectory.calls] == [LONG] * 90 + [None] * 10
    assert [known.cut for known in trajectory.calls] == [()] * 90 + [(name,)] * 10
    assert trajectory.incomplete_reasons["cut JSON"] == 10


def test_a_short_name_is_that_of_every_call():
    said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    trajectory = one([span(1, attributes=said), *(call(number, 1) for number in range(2, MANY + 2))])
    assert {(known.agent, known.cut) for known in trajectory.calls} == {("planner", ())}


@pytest.mark.parametrize("name", ["rollout.name", "group.id", "split", "policy.version"])
def test_a_long_name_of_a_process_is_not_that_of_its_rollouts(name):
    found = {}
    for length in (MAX_OF_NAME, MAX_OF_NAME + 1):
        told = Resource(attributes={f"art.{name}": "x" * length})
        trajectory = one([span(1, name="rollout y", attributes={"art.rollout.id": "r"}, resource=told)])
        policy = trajectory.policy_version.first if trajectory.policy_version else None
        field = {"rollout.name": trajectory.name, "group.id": trajectory.group_id, "split": trajectory.split}
        found[length] = (field.get(name, policy), trajectory.incomplete_reasons)
    assert found[MAX_OF_NAME] == ("x" * MAX_OF_NAME, {})
    assert found[MAX_OF_NAME + 1] == ("y" if name == "rollout.name" else None, {"cut JSON": 1})


def test_a_rollout_does_not_name_a_parent_of_a_long_name():
    long = "r" * (MAX_OF_NAME + 1)
    spans = [
        span(1, name="rollout x", attributes={"art.rollout.id": long}),
        span(2, 1, name="rollout y", attributes={"art.rollout.id": "inner"}),
    ]
    inner, outer = build_trajectories(SpanGroup(spans=spans)).trajectories
    if inner.rollout_id == long:
        inner, outer = outer, inner
    assert (outer.rollout_id, outer.complete) == (long, True)
    assert (inner.parent_rollout_id, inner.incomplete_reasons) == (None, {"cut JSON": 1})


def test_a_damage_is_as_short_as_can_be_read():
    damage = Quarantined(reason="bad reward", path="p" * 10_000, detail="d" * 10_000)
    assert (len(damage.path), len(damage.detail)) == (1001, 301)
    assert damage.path.endswith("p…")
