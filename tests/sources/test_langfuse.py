"""Observations as Langfuse exports them: recordings of its SDK, put into the form that its field reference names."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conversions import convert_files

DIALECTS = Path(__file__).parent.parent / "dialects"
PREFIX = "langfuse.observation."
API = {
    "trace_id": "traceId",
    "parent_observation_id": "parentObservationId",
    "start_time": "startTime",
    "end_time": "endTime",
    "provided_model_name": "model",
    "model_parameters": "modelParameters",
    "usage_details": "usageDetails",
    "completion_start_time": "completionStartTime",
    "status_message": "statusMessage",
}


def is_langfuse(span: dict) -> bool:
    """Whether the SDK of Langfuse made it: the Anthropic SDK has spans of its own."""
    return any(one["key"].startswith(PREFIX) for one in span["attributes"])


def exported(span: dict) -> dict:
    """A row of the blob export, by its field reference."""
    told = {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}
    told = {name.removeprefix(PREFIX): value for name, value in told.items() if name.startswith(PREFIX)}
    times = [datetime.fromtimestamp(int(span[name]) / 1e9, UTC) for name in ("startTimeUnixNano", "endTimeUnixNano")]
    return {
        "id": span["spanId"],
        "trace_id": span["traceId"],
        "type": told["type"].upper(),
        "parent_observation_id": span.get("parentSpanId", ""),
        "start_time": f"{times[0]:%Y-%m-%d %H:%M:%S.%f}",
        "end_time": f"{times[1]:%Y-%m-%d %H:%M:%S.%f}",
        "name": span["name"],
        "metadata": {name[9:]: value for name, value in told.items() if name.startswith("metadata.")},
        "level": "DEFAULT",
        "status_message": "",
        "input": told.get("input", ""),
        "output": told.get("output", ""),
        "provided_model_name": told.get("model.name", ""),
        "model_parameters": told.get("model.parameters", ""),
        "usage_details": json.loads(told.get("usage_details", "{}")),
        "completion_start_time": told.get("completion_start_time"),
    }


def answered(row: dict) -> dict:
    """The same as the API has it: other names, and values for texts of them."""
    values = {name: json.loads(row[name]) if row[name][:1] in ("{", "[") else row[name] for name in ("input", "output")}
    return {API.get(name, name): value for name, value in (row | values).items() if value != ""}


def content(trajectories) -> list:
    return [
        [
            (call.input_messages, call.choices, call.usage, call.tools, call.request_model, call.parameters)
            for call in one.calls
        ]
        + [(tool.name, tool.arguments, tool.result, tool.turn) for tool in one.tool_calls]
        + [one.complete, one.incomplete_reasons]
        for one in trajectories
    ]


@pytest.mark.parametrize("name", ["langfuse_langchain", "langfuse_langchain_anthropic", "langfuse_stream"])
def test_an_export_says_what_the_sdk_sent(tmp_path, name):
    requests = [json.loads(line) for line in (DIALECTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    scopes = [scope for one in requests for resource in one["resourceSpans"] for scope in resource["scopeSpans"]]
    for scope in scopes:
        scope["spans"] = [span for span in scope["spans"] if is_langfuse(span)]
    rows = [exported(span) for scope in scopes for span in scope["spans"]]
    dump = tmp_path / "otlp.jsonl"
    dump.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
    expected = content(convert_files(tmp_path / "otlp", dump)[0])
    dumps = {
        "lines": "".join(json.dumps(row) + "\n" for row in rows),
        "list": json.dumps([answered(row) for row in rows]),
        "answer": json.dumps({"data": [answered(row) for row in rows], "meta": {}}),
        "trace": json.dumps({"id": rows[0]["trace_id"], "observations": [answered(row) for row in rows]}),
    }
    for form, dump in dumps.items():
        (tmp_path / f"{form}.json").write_text(dump, encoding="utf-8")
        trajectories, report = convert_files(tmp_path / form, tmp_path / f"{form}.json")
        assert not report.spans.quarantined
        assert content(trajectories) == expected, form


def test_ids_of_older_sdks_become_ids(tmp_path):
    rows = [
        {"id": f"00000000-0000-4000-8000-00000000000{number}", "trace_id": "t-1", "start_time": "2026-01-01 00:00:00"}
        for number in (1, 2)
    ]
    rows[0] |= {"type": "SPAN", "name": "agent", "parent_observation_id": "", "end_time": "2026-01-01 00:00:02"}
    rows[1] |= {"type": "GENERATION", "parent_observation_id": rows[0]["id"], "end_time": "2026-01-01 00:00:01"}
    rows[1] |= {"input": '[{"role":"user","content":"q"}]', "output": "a", "level": "ERROR", "status_message": "no"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path / "out", tmp_path / "rows.jsonl")
    assert trajectory.name == "agent"
    assert [call.failed for call in trajectory.calls] == [True]
