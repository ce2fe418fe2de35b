"""Rubbish of every kind is counted and named in the quarantine; neighbours are kept; nothing is raised."""

import json
import subprocess
import sys

import pytest

from tests.conversions import RECORDINGS, convert_files
from tests.dumps import chat_span, make_span, request_of

GOOD = request_of(make_span(1, name="rollout good", attributes={"art.rollout.id": "good"}), chat_span(2, 1, ["a"], "b"))


def bad_span(**fields):
    return make_span(0xBAD, trace=9, **fields)


LINES: dict[str, tuple[str | bytes, str]] = {
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
    "cycle of one": (json.dumps(request_of(bad_span(parentSpanId=f"{0xBAD:016x}"))), "cycle of parents"),
    "torn": (json.dumps(request_of(bad_span()))[:-20], "torn"),
}
LAST_ONLY = {"torn"}


def fixed(line: str | bytes) -> bytes:
    return line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")


@pytest.fixture
def alone(tmp_path):
    (tmp_path / "good.jsonl").write_text(json.dumps(GOOD) + "\n")
    return convert_files(tmp_path / "alone", tmp_path / "good.jsonl")[0]


@pytest.mark.parametrize("name", LINES)
def test_a_bad_line_costs_no_neighbour(name, tmp_path, alone):
    line, reason = LINES[name]
    good = json.dumps(GOOD).encode()
    lines = [good, fixed(line)] if name in LAST_ONLY else [fixed(line), good, fixed(line)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert trajectories == alone
    assert set(report.spans.quarantined) == {reason}
    assert all(piece.reason == reason for piece in report.quarantine)
    assert all("in.jsonl" in piece.path or "trace" in piece.path for piece in report.quarantine)


@pytest.mark.parametrize("name", ["short trace id", "backwards", "wrong type", "cycle of one"])
def test_a_bad_span_costs_no_neighbour_in_its_own_line(name, tmp_path, alone):
    line, reason = LINES[name]
    good = json.dumps(GOOD["resourceSpans"][0]["scopeSpans"][0]["spans"])[1:-1]
    (tmp_path / "in.jsonl").write_bytes(fixed(line).replace(b'"spans": [', b'"spans": [' + good.encode() + b", "))
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert trajectories == alone
    assert report.spans.quarantined == {reason: 1}


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


def test_the_command_prints_no_traceback(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(fixed(line) for line, _ in LINES.values()))
    command = [sys.executable, "-m", "art_otel", "convert", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert "Traceback" not in result.stdout + result.stderr
    strict = subprocess.run([*command, "--strict"], capture_output=True, text=True, check=False)
    assert strict.returncode == 3


def test_a_recording_torn_anywhere_is_read_up_to_there(tmp_path):
    data = (RECORDINGS / "genai_span" / "sync_tools.jsonl").read_bytes()
    for at in range(0, len(data), len(data) // 10):
        (tmp_path / "in.jsonl").write_bytes(data[:at])
        _, report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
        assert sum(report.spans.quarantined.values()) <= 1


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


def test_a_bad_resource_costs_no_span(tmp_path, alone):
    request = json.loads(json.dumps(GOOD))
    request["resourceSpans"][0]["resource"] = {"attributes": "oops"}
    (tmp_path / "in.jsonl").write_text(json.dumps(request))
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert trajectories == alone
    assert report.quarantine


def test_names_of_old_otlp_are_read(tmp_path, alone):
    text = (
        json.dumps(GOOD)
        .replace("scopeSpans", "instrumentationLibrarySpans")
        .replace('"scope"', '"instrumentationLibrary"')
    )
    (tmp_path / "in.jsonl").write_text(text)
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "in.jsonl")
    assert trajectories == alone
