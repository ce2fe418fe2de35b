"""What is above calls: asked once of each span, however many rollouts are nested in one trace."""

import pytest

from art_otel.spans import Span
from art_otel.trajectories import SpanGroup, build_trajectories
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
