"""Traces that share a rollout id are assembled together, whatever slots they are in."""

import pytest

from art_otel.spans import span as damage
from tests.conversions import SMALL, convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines

TRACES = 40


def spans():
    """One rollout over many traces, a reward from elsewhere, and rollouts of their own beside them."""
    known = {"art.rollout.id": "wide"}
    yield make_span(1, name="rollout wide", trace=1, attributes=known)
    for trace in range(1, TRACES):
        yield chat_span(100 + trace, None if trace > 1 else 1, [f"q{trace}"], "a", trace=trace, attributes=known)
    for trace in range(TRACES, 2 * TRACES):
        yield make_span(1, name=f"rollout {trace}", trace=trace, attributes={"art.rollout.id": f"r{trace}"})
        yield chat_span(2, 1, [f"q{trace}"], "a", trace=trace)
        link = [{"traceId": f"{trace:032x}", "spanId": f"{1:016x}"}]
        score = {"art.reward": float(trace)}
        yield make_span(3, trace=1_000 + trace, name="reward late", links=link, attributes=score)


@pytest.mark.parametrize("workers", [1, 2])
def test_linked_traces_meet_over_slots(tmp_path, workers):
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, spans()))
    trajectories, report = convert_files(tmp_path / "out", dump, workers=workers, sizes=SMALL)
    assert len(trajectories) == 1 + TRACES
    trajectories.sort(key=lambda one: one.order)
    wide = trajectories[-1]
    assert (wide.rollout_id, len(wide.calls)) == ("wide", TRACES - 1)
    assert [trajectory.reward for trajectory in trajectories[:-1]] == [
        float(trajectory.rollout_id[1:]) for trajectory in trajectories[:-1]
    ]
    assert report.spans.used == report.spans.read
    assert all(trajectory.complete for trajectory in trajectories)


def test_damages_beyond_the_list_are_still_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(damage, "MAX_LISTED", 2)
    (tmp_path / "in.jsonl").write_text('rubbish\n{"resourceSpans": []}\n' * 5)
    _, report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert report.spans.quarantined == {"not JSON": 5}
    assert len(report.quarantine) == 2


def test_log_records_of_spans_that_are_not_there_are_counted(tmp_path):
    log = {"traceId": f"{7:032x}", "spanId": f"{7:016x}", "timeUnixNano": "1", "eventName": "gen_ai.user.message"}
    blind = make_span(2, kind=3, attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    logs = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": [log, log, {}]}]}]}
    dump = write_lines(tmp_path / "in.jsonl", [request_of(blind), logs])
    _, report = convert_files(tmp_path / "out", dump)
    assert (report.logs.read, report.logs.without_span, report.logs.duplicate) == (3, 2, 1)
    assert any("log records name spans" in hint for hint in report.hints)
