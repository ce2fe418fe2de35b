"""Log records reach the call they tell of, also when the instrumentor named the span around it."""

import pytest

from tests.conversions import convert_files
from tests.dumps import attribute, make_span, request_of, write_lines


def record(number: int, name: str, time: int, **body):
    values = [
        {"key": key, "value": value if isinstance(value, dict) else attribute(value)} for key, value in body.items()
    ]
    return {
        "traceId": f"{1:032x}",
        "spanId": f"{number:016x}",
        "timeUnixNano": str(time),
        "eventName": name,
        "body": {"kvlistValue": {"values": values}},
    }


def choice(number: int, time: int, text: str):
    message = {"kvlistValue": {"values": [{"key": "content", "value": attribute(text)}]}}
    return record(number, "gen_ai.choice", time, index=0, message=message, finish_reason="stop")


def convert(tmp_path, *logs):
    def call(number: int, start: int):
        known = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 50)}
        return make_span(number, 1, kind=3, attributes=known, **times)

    spans = request_of(make_span(1, name="rollout x", startTimeUnixNano="10"), call(2, 100), call(3, 200))
    records = {"resourceLogs": [{"scopeLogs": [{"logRecords": list(logs)}]}]}
    (trajectory,), report = convert_files(tmp_path / "out", write_lines(tmp_path / "in.jsonl", [spans, records]))
    return trajectory, report


def test_a_completion_on_the_span_around_the_call_is_led_to_the_call(tmp_path):
    trajectory, report = convert(
        tmp_path,
        record(2, "gen_ai.user.message", 101, content="a"),
        record(3, "gen_ai.user.message", 201, content="c"),
        choice(1, 149, "b"),
        choice(1, 249, "d"),
    )
    assert [call.choices[0].message.content for call in trajectory.calls] == ["b", "d"]
    assert trajectory.complete
    assert report.logs.joined == 4


def test_a_completion_at_a_time_when_no_call_ran_is_led_nowhere(tmp_path):
    trajectory, _ = convert(tmp_path, record(2, "gen_ai.user.message", 101, content="a"), choice(1, 180, "b"))
    assert [call.choices for call in trajectory.calls] == [None, None]


def test_a_completion_while_two_calls_ran_is_led_nowhere(tmp_path):
    def call(number: int, start: int, end: int):
        known = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(end)}
        return make_span(number, 1, kind=3, attributes=known, **times)

    root = make_span(1, name="rollout x", startTimeUnixNano="10")
    spans = request_of(root, call(2, 100, 200), call(3, 150, 250))
    records = {"resourceLogs": [{"scopeLogs": [{"logRecords": [choice(1, 150, "b"), choice(1, 201, "d")]}]}]}
    dump = write_lines(tmp_path / "in.jsonl", [spans, records])
    (trajectory,), _ = convert_files(tmp_path / "out", dump)
    assert [call.choices and call.choices[0].message.content for call in trajectory.calls] == [None, "d"]


@pytest.mark.parametrize(("spans", "logs"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_a_log_record_that_lost_a_value_costs_its_span_nothing(tmp_path, spans, logs):
    call = make_span(1, attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, kind=3)
    bad, good = (record(1, "gen_ai.user.message", time, content="a") for time in (5, 6))
    bad["attributes"] = [{"key": "bad", "value": {"doubleValue": "NaN"}}]
    records = {"resourceLogs": [{"scopeLogs": [{"logRecords": [*[bad] * logs, good]}]}]}
    dump = write_lines(tmp_path / "in.jsonl", [*[request_of(call)] * spans, records])
    (trajectory,), report = convert_files(tmp_path / "out", dump)
    assert (report.spans.read, report.spans.used, report.spans.duplicate) == (spans, 1, spans - 1)
    assert report.spans.quarantined == {}
    assert (report.logs.read, report.logs.joined, report.logs.duplicate) == (logs + 1, 1, 0)
    assert report.logs.quarantined == {"not a finite number": logs}
    assert trajectory.incomplete_reasons["value quarantined"] == 1
