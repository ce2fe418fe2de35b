"""Response ids that a server gives again and again: whose spans are of one request, in any number."""

from art_otel.spans import Scope, Span
from art_otel.trajectories import SpanGroup, build_trajectories
from tests.batches.test_peer_errors import operations

TRACE = "1" * 32


def one_id(count: int, *, at_once: bool) -> SpanGroup:
    """Calls by one or many instrumentors, all with one response id."""
    own = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r"}
    spans = [Span(trace_id=TRACE, span_id=f"{1:016x}", name="work", start_ns=1, end_ns=10**6)]
    for number in range(2, count + 2):
        place = {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_span_id": f"{1:016x}"}
        scope = Scope(name=f"lib {number}" if at_once else "lib")
        start, end = (10, 20) if at_once else (10 * number, 10 * number + 5)
        spans.append(Span(**place, name="chat", attributes=own, scope=scope, start_ns=start, end_ns=end))
    return SpanGroup(spans=spans)


def test_spans_of_one_response_id_take_linear_time():
    small, large = (operations(build_trajectories, one_id(count, at_once=False)) / count for count in (100, 800))
    assert large < 1.5 * small


def test_instrumentors_of_one_request_are_one_call_however_many():
    ((call,),) = [one.calls for one in build_trajectories(one_id(300, at_once=True)).trajectories]
    assert call.response_id == "r"
    small, large = (operations(build_trajectories, one_id(count, at_once=True)) / count for count in (100, 800))
    assert large < 1.5 * small
