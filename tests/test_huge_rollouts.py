"""Rollouts beyond the limits are set aside whole, counted and named; their neighbours are kept."""

import pytest

from art_otel.sources import Limits
from tests.conversions import convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines


def rollout(trace, calls, **attributes):
    yield make_span(1, name="rollout", trace=trace, attributes={"art.rollout.id": f"r{trace}", **attributes})
    for call in range(calls):
        yield chat_span(10 + call, 1, [f"q{trace} {call}"], "a", trace=trace)


@pytest.mark.parametrize(
    "limits", [Limits(max_rollout_spans=50), Limits(max_rollout_bytes=20_000)], ids=["spans", "bytes"]
)
def test_a_huge_rollout_costs_itself_only(tmp_path, limits):
    spans = [*rollout(1, 2), *rollout(2, 60), *rollout(3, 2)]
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, spans))
    trajectories, report = convert_files(tmp_path / "out", dump, limits=limits)
    assert [trajectory.rollout_id for trajectory in trajectories] == ["r1", "r3"]
    assert report.spans.quarantined == {"over a limit": 61}
    (named,) = report.quarantine
    assert named.path == f"trace {2:032x}"
    assert named.detail.startswith("61 spans, ")
    assert "--max-rollout-spans" in named.detail
    assert "--max-rollout-bytes" in named.detail


def test_kin_traces_count_together(tmp_path):
    known = {"art.rollout.id": "wide"}
    spans = [make_span(1, name="rollout", trace=1, attributes=known)]
    spans += [chat_span(2, None, ["q"], "a", trace=trace, attributes=known) for trace in range(2, 60)]
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, [*spans, *rollout(100, 2)]))
    trajectories, report = convert_files(tmp_path / "out", dump, limits=Limits(max_rollout_spans=50))
    assert [trajectory.rollout_id for trajectory in trajectories] == ["r100"]
    assert report.spans.quarantined == {"over a limit": 59}
