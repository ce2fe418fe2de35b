"""Rollouts beyond the limits are set aside whole, counted and named; their neighbours are kept."""

import pytest
from msgspec.structs import replace

from art_otel.engines import Times
from art_otel.sources import Limits
from tests.conversions import SMALL, convert_files
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


@pytest.mark.parametrize("limits", [Limits(max_rollout_spans=50), Limits(max_rollout_bytes=8_000)])
def test_rollouts_are_limited_over_all_their_traces(tmp_path, limits):
    known = {"art.rollout.id": "wide"}
    spans = [make_span(1, name="rollout", trace=1, attributes=known)]
    spans += [chat_span(2, None, ["q" * 500], "a", trace=trace, attributes=known) for trace in range(2, 60)]
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, [*spans, *rollout(100, 2)]))
    trajectories, report = convert_files(tmp_path / "out", dump, limits=limits)
    assert [trajectory.rollout_id for trajectory in trajectories] == ["r100"]
    assert report.spans.quarantined == {"over a limit": 59}


def attempts(*calls):
    """Rollouts with one id, each in a trace of its own."""
    known = {"art.rollout.id": "task-7"}
    for trace, count in enumerate(calls, 1):
        yield make_span(1, name="rollout", trace=trace, attributes=known)
        for call in range(count):
            yield chat_span(2 + call, 1, [f"q{trace} {call}"], "a", trace=trace)


@pytest.mark.parametrize("limits", [Limits(max_rollout_spans=20), Limits(max_rollout_bytes=9_000)])
@pytest.mark.parametrize("incremental", [False, True])
def test_rollouts_that_share_an_id_are_limited_together(tmp_path, limits, incremental):
    spans = [*attempts(3, 3, 60, 3), *rollout(100, 2)]
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, spans))
    found, report = convert_files(tmp_path / "one", dump, limits=limits, incremental=incremental, times=Times(grace=0))
    assert [one.rollout_id for one in found] == ["r100"]
    assert (report.spans.used, report.spans.quarantined) == (3, {"over a limit": 73})
    assert [entry.path for entry in report.quarantine] == [f"trace {1:032x}"]


def reward_span(number, trace, value, target_trace, target=1):
    judged = {"traceId": f"{target_trace:032x}", "spanId": f"{target:016x}"}
    return make_span(number, name="reward reward", trace=trace, links=[judged], attributes={"art.reward": value})


def judged_rollouts(count):
    """Rollouts that one trace of a grader judges, one of them by its response, and one that it cannot find."""
    spans = [span for trace in range(1, count + 1) for span in rollout(trace, 6)]
    spans += [make_span(1, name="grader", trace=900)]
    spans += [reward_span(1 + trace, 900, trace / 10, trace) for trace in range(1, count + 1)]
    spans += [reward_span(500, 900, 0.5, 3, target=11), reward_span(501, 900, 0.5, 3, target=444)]
    return spans


@pytest.mark.parametrize("name", ["max_rollout_spans", "max_rollout_bytes"])
def test_rollouts_that_are_judged_together_are_limited_each_by_itself(tmp_path, name):
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, judged_rollouts(12)))
    known, report = convert_files(tmp_path / "whole", dump)
    limit = {"max_rollout_spans": 30, "max_rollout_bytes": 12_000}[name]
    found, apart = convert_files(tmp_path / "apart", dump, limits=Limits(**{name: limit}))
    assert {one.rollout_id: one.reward for one in known} == {f"r{trace}": trace / 10 for trace in range(1, 13)}
    assert found == known
    assert apart.spans == report.spans
    assert report.spans.ignored == {"no LLM call in its trace": 1}
    assert report.rewards.undeliverable == {"linked span not in the sources": 1}
    assert apart.rewards == report.rewards


@pytest.mark.parametrize("limits", [Limits(max_rollout_spans=20), Limits(max_rollout_bytes=9_000)])
def test_repeated_delivery_makes_no_rollout_larger(tmp_path, limits):
    dump = write_lines(tmp_path / "in.jsonl", [*map(request_of, rollout(1, 12))] * 3)
    (trajectory,), report = convert_files(tmp_path / "out", dump, limits=limits)
    assert len(trajectory.calls) == 12
    assert (report.spans.used, report.spans.duplicate) == (13, 26)


def test_a_slot_larger_than_memory_should_hold_is_read_in_passes(tmp_path):
    spans = [span for trace in range(100, 130) for span in rollout(trace, 6)] + judged_rollouts(3)
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, spans))
    whole = convert_files(tmp_path / "whole", dump)
    assert_same(convert_files(tmp_path / "passes", dump, sizes=replace(SMALL, slots=1, partition_bytes=10_000)), whole)


def assert_same(found, expected):
    assert sorted(found[0], key=by_order) == sorted(expected[0], key=by_order)
    assert found[1].to_json() | {"parts": ()} == expected[1].to_json() | {"parts": ()}


def by_order(trajectory):
    return trajectory.order


def by_id(number, trace, rollout_id, value):
    return make_span(
        number, name="reward reward", trace=trace, attributes={"art.rollout.id": rollout_id, "art.reward": value}
    )


def llm_judge(count):
    """Rollouts that another rollout judges, by links on spans below its own call."""
    spans = [span for trace in range(1, count + 1) for span in rollout(trace, 6)] + [*rollout(950, 1)]
    for trace in range(1, count + 1):
        links = [{"traceId": f"{trace:032x}", "spanId": f"{1:016x}"}]
        spans.append(
            make_span(100 + trace, 10, name="grade", trace=950, links=links, attributes={"art.reward": trace / 10})
        )
    return spans


@pytest.mark.parametrize(
    "spans",
    [
        [*judged_rollouts(6), *(by_id(600 + trace, 901, f"r{trace}", 0.25) for trace in range(1, 7))],
        llm_judge(6),
        [*judged_rollouts(6), make_span(700, 699, name="reward x", trace=900, attributes={"art.reward": 1.0})],
    ],
    ids=["by id", "judge that is a rollout", "torn"],
)
def test_whoever_is_judged_is_limited_by_itself(tmp_path, spans):
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, spans))
    known, report = convert_files(tmp_path / "whole", dump)
    found, limited = convert_files(tmp_path / "limited", dump, limits=Limits(max_rollout_spans=25))
    assert found == known
    assert (limited.spans, limited.rewards) == (report.spans, report.rewards)


def test_a_reward_of_a_rollout_beyond_the_limits_is_undeliverable(tmp_path):
    spans = [*rollout(1, 2), *rollout(2, 60), *(reward_span(trace, 900, 1.0, trace) for trace in (1, 2))]
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, spans))
    (trajectory,), report = convert_files(tmp_path / "out", dump, limits=Limits(max_rollout_spans=50))
    assert trajectory.reward == 1.0
    assert (report.rewards.delivered, report.rewards.undeliverable) == (1, {"rollout over a limit": 1})
