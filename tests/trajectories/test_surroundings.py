"""What is above calls: asked once of each span, however many rollouts are nested in one trace."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions import parse_call
from art_otel.spans import Scope, Span, SpanKey, SpanTree, build_tree
from art_otel.store.rows import store_trajectory
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.step_data import StepData
from art_otel.trajectories.limits import MAX_HELD, Budget, Budgets
from tests.batches.test_peer_errors import operations


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


def answers_at_the_end_of_a_path(length: int) -> SpanGroup:
    """A call around a path of spans, below whose last others answer as the call does."""
    times = {"trace_id": "1" * 32, "start_ns": 1, "end_ns": 1_000_000}
    said = '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.output.messages": said}
    otherwise = {"gen_ai.input.messages": said.replace("assistant", "user")}
    first = {"gen_ai.input.messages": said.replace("assistant", "system")}
    spans = [Span(span_id=f"{1:016x}", name="chat m", attributes=asked | first, **times)]
    spans += [
        Span(span_id=f"{number:016x}", parent_span_id=f"{number - 1:016x}", name="work", **times)
        for number in range(2, length + 2)
    ]
    for number in range(length + 2, 2 * length + 2):
        own = {"parent_span_id": f"{length + 1:016x}", "scope": Scope(name=f"lib {number}")}
        spans.append(Span(span_id=f"{number:016x}", name="chat m", attributes=asked | otherwise, **times, **own))
    return SpanGroup(spans=spans)


def test_what_runs_between_calls_is_found_in_linear_time():
    small, large = (
        operations(build_trajectories, answers_at_the_end_of_a_path(length)) / length for length in (100, 800)
    )
    assert large < 1.2 * small


def calls_below_an_answer_of_tools(count: int) -> SpanGroup:
    """A call that answered with many tool calls, around as many that answered with one."""
    times = {"trace_id": "1" * 32, "start_ns": 1, "end_ns": 1_000_000}
    part = {"type": "tool_call", "id": None, "name": "look", "arguments": {"a": 1}}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}

    def answered(tools: int) -> dict[str, str]:
        return asked | {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part] * tools}])}

    spans = [Span(span_id=f"{1:016x}", name="chat m", attributes=answered(count), **times)]
    for number in range(2, count + 2):
        own = {"parent_span_id": f"{1:016x}", "scope": Scope(name=f"lib {number}")}
        prompt = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": []}] * 2)}
        spans.append(Span(span_id=f"{number:016x}", name="chat m", attributes=answered(1) | prompt, **times, **own))
    outer = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": []}])}
    spans[0] = msgspec.structs.replace(spans[0], attributes=spans[0].attributes | outer)
    return SpanGroup(spans=spans)


def test_an_answer_of_many_tool_calls_is_not_parsed_for_each_call_below():
    small, large = (
        operations(build_trajectories, calls_below_an_answer_of_tools(count)) / count for count in (50, 400)
    )
    assert large < 1.2 * small


def steps_with_calls(**own: str) -> SpanGroup:
    state = {"art.step.index": 0, "art.env_state": '{"board": "xo"}', "art.extra": '{"seed": 1}'}
    times = {"trace_id": "1" * 32, "start_ns": 1, "end_ns": 1_000_000}
    spans = [Span(span_id=f"{1:016x}", name="step 0", attributes=state, **times)]
    for number in (2, 3, 4):
        asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **(own if number == 4 else {})}
        spans.append(
            Span(span_id=f"{number:016x}", parent_span_id=f"{1:016x}", name="chat m", attributes=asked, **times)
        )
    return SpanGroup(spans=spans)


def test_the_calls_of_a_step_share_what_it_says_and_its_text():
    (trajectory,) = build_trajectories(steps_with_calls(**{"art.env_state": '{"turn": 2}'})).trajectories
    first, second, last = trajectory.calls
    assert first.env_state is second.env_state
    assert first.extra is second.extra is last.extra
    assert (first.env_state, first.extra) == ({"board": "xo"}, {"seed": 1})
    assert last.env_state == {"board": "xo", "turn": 2}
    row = store_trajectory(trajectory)
    assert [call.env_state for call in row.calls] == [0, 0, 2]
    assert [call.extra for call in row.calls] == [1, 1, 1]
    assert row.objects == ('{"board":"xo"}', '{"seed":1}', '{"board":"xo","turn":2}')


def test_a_call_without_room_for_what_its_step_says_has_its_own_and_names_the_other():
    step, *calls = steps_with_calls().spans
    said, budget = StepData(), Budget(len("boardxo") + 1 + 100)
    budgets = Budgets(prompts=Budget(0), steps=budget, names=Budget(0), held=Budget(MAX_HELD))
    alone, adding = (
        parse_call(calls[0], ()),
        parse_call(steps_with_calls(**{"art.env_state": '{"turn": 2}'}).spans[3], ()),
    )
    found = [said.add_to(call, step, budgets) for call in (alone, adding, adding, alone)]
    assert [call.env_state for call in found] == [
        {"board": "xo"},
        {"board": "xo", "turn": 2},
        {"turn": 2},
        {"board": "xo"},
    ]
    assert [call.cut for call in found] == [(), (), ("art.env_state",), ()]
    assert {id(call.extra) for call in found} == {id(found[0].extra)}


@st.composite
def trees(draw) -> tuple[SpanTree, set[SpanKey]]:
    """A few spans below each other, and some of them, which are the own spans of rollouts."""
    spans: list[Span] = []
    for number in range(1, draw(st.integers(2, 12))):
        parent = draw(st.integers(0, number))  # 0 and its own number are no span: a root, an orphan
        above = None if parent == 0 else f"{parent if parent < number else 99:016x}"
        times = {"start_ns": draw(st.integers(0, 5)), "end_ns": 9}
        spans.append(Span(trace_id="1" * 32, span_id=f"{number:016x}", parent_span_id=above, name="x", **times))
    return build_tree(spans), draw(st.sets(st.sampled_from([span.key for span in spans])))


def above_within_rollout(key: SpanKey, tree: SpanTree, rollouts: set[SpanKey]) -> list[SpanKey]:
    found: list[SpanKey] = []
    for span in tree.ancestors(tree.spans[key]):
        found.append(span.key)
        if span.key in rollouts:
            break
    return found


@given(trees())
def test_what_is_beside_a_span_is_below_its_parent_in_its_rollout(drawn):
    tree, rollouts = drawn
    ancestry = Ancestry(tree, {}, rollouts)
    for inner in tree.spans:
        parent = tree.parents.get(inner)
        for other in tree.spans:
            below = parent is None or parent in above_within_rollout(other, tree, rollouts)
            assert (ancestry.beside(other).start in ancestry.beside(inner)) == below
