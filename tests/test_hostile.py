"""Rubbish through a whole conversion: counted and named, neighbours kept. tests/sources has every kind of it."""

import json
import subprocess
import sys

from tests.conversions import convert_files
from tests.dumps import chat_span, make_span, request_of

GOOD = request_of(make_span(1, name="rollout good", attributes={"art.rollout.id": "good"}), chat_span(2, 1, ["a"], "b"))


def bad_span(**fields):
    return make_span(0xBAD, trace=9, **fields)


LINES: dict[str, tuple[str, str]] = {
    "rubbish": ("this is not JSON", "not JSON"),
    "other JSON": ('{"hello": "world"}', "not OTLP"),
    "NaN": (json.dumps(request_of(bad_span(attributes={"a": float("nan")}))), "not a finite number"),
    "infinity as text": (
        json.dumps(request_of(bad_span(attributes=[{"key": "a", "value": {"doubleValue": "Infinity"}}]))),
        "not a finite number",
    ),
    "short trace id": (json.dumps(request_of(bad_span(traceId="abcd"))), "bad id"),
    "missing id": (json.dumps(request_of({"name": "x", "startTimeUnixNano": "1"})), "bad id"),
    "backwards": (
        json.dumps(request_of(bad_span(startTimeUnixNano="9", endTimeUnixNano="1"))),
        "ends before it starts",
    ),
    "huge time": (json.dumps(request_of(bad_span(startTimeUnixNano=str(10**40)))), "bad field"),
    "wrong type": (json.dumps(request_of(bad_span(attributes="oops"))), "bad field"),
    "cycle of one": (json.dumps(request_of(make_span(7, 7, trace=9))), "cycle of parents"),
    "torn": (json.dumps(request_of(bad_span()))[:-20], "torn"),
}


def test_bad_lines_cost_no_neighbour_and_the_command_prints_no_traceback(tmp_path):
    good = json.dumps(GOOD)
    (tmp_path / "good.jsonl").write_text(good)
    (tmp_path / "in.jsonl").write_text("\n".join([good, *(line for line, _ in LINES.values())]))
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert trajectories == convert_files(tmp_path / "alone", tmp_path / "good.jsonl")[0]
    assert set(report.spans.quarantined) == {reason for _, reason in LINES.values()}
    assert all("in.jsonl" in piece.path or "trace" in piece.path for piece in report.quarantine)
    command = [sys.executable, "-m", "art_otel", "convert", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out")]
    for options, code in (([], 0), (["--strict"], 3)):
        result = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert result.returncode == code
        assert "Traceback" not in result.stdout + result.stderr


def test_a_cycle_of_parents_leaves_the_rest_of_its_trace(tmp_path):
    spans = [
        make_span(3, 4),
        make_span(4, 3),
        make_span(1, name="rollout x"),
        chat_span(2, 1, ["a"], "b"),
        chat_span(5, 4, ["c"], "d"),
    ]
    (tmp_path / "in.jsonl").write_text(json.dumps(request_of(*spans)))
    (trajectory,), report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert report.spans.quarantined == {"cycle of parents": 2}
    assert len(trajectory.calls) == 2
    assert trajectory.incomplete_reasons == {"missing parent": 1, "span quarantined": 2}


def test_several_bad_values_in_one_span_count_it_once(tmp_path):
    bad = {"art.rollout.id": "r", "art.reward": float("nan"), "art.metric.x": float("inf")}
    links = [{"traceId": "oops", "spanId": "oops"}]
    events = [{"name": "e", "attributes": [{"key": "k", "value": {"doubleValue": "NaN"}}]}]
    root = make_span(1, name="rollout x", attributes=bad, links=links, events=events)
    line = json.dumps(request_of(root, chat_span(2, 1, ["a"], "b")))
    (tmp_path / "in.jsonl").write_text(f"{line}\n{line}\n")
    (trajectory,), report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert (report.spans.read, report.spans.used, report.spans.duplicate) == (4, 1, 1)
    assert sum(report.spans.quarantined.values()) == 2
    assert trajectory.reward is None
    assert trajectory.incomplete_reasons == {"value quarantined": 1}
