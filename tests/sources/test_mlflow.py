"""What single fields of MLflow's own formats mean."""

import base64
import json

import pytest

from art_otel.errors import SourceError
from tests.sources.requests import read_bytes, spans_of
from tests.sources.test_backends import TRACE
from tests.sources.writers.requests import base64_id


def test_values_of_mlflow(tmp_path):
    texts = {
        "text": '"a"',
        "number": "5",
        "none": "null",
        "list": '["a", 1]',
        "lists": "[[1]]",
        "object": '{"a": 1}',
        "objects": '[{"a": 1}]',
        "broken": "[1",
        "plain": 5,
    }
    span = {
        "trace_id": base64.b64encode(bytes.fromhex(TRACE)).decode(),
        "span_id": base64.b64encode(bytes(7) + b"\x01").decode(),
        "start_time_unix_nano": "5",
        "status": {"code": 2, "message": "m"},
        "attributes": texts,
    }
    for info in ({"tags": {"a": "b", "mlflow.x": "y"}}, {"tags": 5}):
        (read,) = read_bytes(tmp_path, json.dumps({"info": info, "data": {"spans": [span]}}).encode())[0]
        assert (read.trace_id, read.start_ns, read.end_ns, read.status) == (TRACE, 5, None, "error")
        assert read.resource.attributes == ({"a": "b"} if info["tags"] != 5 else {})
    assert read.attributes == {
        "text": "a",
        "number": 5,
        "none": None,
        "list": ["a", 1],
        "lists": "[[1]]",
        "object": '{"a": 1}',
        "objects": '[{"a": 1}]',
        "broken": "[1",
        "plain": 5,
    }


def mlflow(folder, **fields):
    span = {"trace_id": TRACE, "span_id": f"{0xA:016x}", "parent_span_id": None, "start_time_unix_nano": 5, **fields}
    records, _ = read_bytes(folder, json.dumps({"info": {"tags": {}}, "data": {"spans": [span]}}).encode())
    return records


@pytest.mark.parametrize("spelled", [str, "0x{}".format, base64_id, lambda text: base64_id(text).rstrip("=")])
@pytest.mark.parametrize("trace", [TRACE, "d31f" + "0" * 27 + "1"])
def test_ids_of_mlflow(trace, spelled, tmp_path):
    own, parent = "d31f000000000001", "00f067aa0ba902b7"
    assert base64_id(own).startswith("0x")
    ids = {"trace_id": spelled(trace), "span_id": spelled(own), "parent_span_id": spelled(parent)}
    (span,) = mlflow(tmp_path, **ids)
    assert (span.trace_id, span.span_id, span.parent_span_id) == (trace, own, parent)
    (damage,) = mlflow(tmp_path, **ids, events=5)
    assert (damage.trace_id, damage.span_id) == (trace, own)


@pytest.mark.parametrize("trace", ["tr-{}", "trace:/7/{}", "trace:/catalog.schema/{}", "trace:/a/b/tr-{}", "{}"])
def test_names_that_mlflow_gives_traces(trace, tmp_path):
    other = "00f067aa0ba902b7"
    link = {"trace_id": trace.format("cd" * 16), "span_id": other, "attributes": {"why": "late"}}
    (span,) = mlflow(tmp_path, trace_id=trace.format(TRACE), links=[link])
    assert span.trace_id == TRACE
    assert [(one.trace_id, one.span_id, one.attributes) for one in span.links] == [("cd" * 16, other, {"why": "late"})]
    (damage,) = mlflow(tmp_path, trace_id=trace.format(TRACE), name=5)
    assert damage.trace_id == TRACE


@pytest.mark.parametrize("size", [100_000, 1_500_000])
@pytest.mark.parametrize("part", ["info", "request", "spans"])
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("text", ["x", '{"a": 1}, '])
def test_a_long_trace_of_mlflow(size, part, is_sorted, text, tmp_path):
    long = text * (size // len(text))
    spans = [{"trace_id": TRACE, "span_id": f"{number:016x}", "start_time_unix_nano": 5} for number in (1, 2, 3)]
    spans[0]["attributes"] = {"a": long if part == "spans" else "a"}
    info = {"trace_id": f"tr-{TRACE}", "tags": {"a": long if part == "info" else "a"}}
    data = {"request": None if part == "info" else long if part == "request" else "a", "spans": spans}
    trace = json.dumps({"info": info, "data": data}, sort_keys=is_sorted).encode()
    for written in (trace, b"[" + trace + b"]", trace + b"\n" + trace):
        records, account = read_bytes(tmp_path, written)
        assert (account.format, account.quarantined) == ("mlflow-json", 0)
        assert [int(span.span_id, 16) for span in records] == [1, 2, 3] * written.count(b'"info"')


def test_a_trace_of_mlflow_with_many_tags(tmp_path):
    info = {"trace_id": f"tr-{TRACE}", "tags": {f"tag{number}": "a" for number in range(20_000)}}
    trace = {"info": info, "data": {"spans": [{"trace_id": TRACE, "span_id": "a" * 16, "start_time_unix_nano": 5}]}}
    records, account = read_bytes(tmp_path, json.dumps(trace).encode())
    assert (account.format, len(spans_of(records)), account.quarantined) == ("mlflow-json", 1, 0)


@pytest.mark.parametrize("data", [{"info": {"request_id": "1"}, "level": "x" * 100_000}, {"data": {"spans": []}}])
def test_what_begins_like_a_trace_of_mlflow_and_is_none(data, tmp_path):
    with pytest.raises(SourceError, match="no known format"):
        read_bytes(tmp_path, json.dumps(data).encode() + b"\n")


def test_mlflow_2(tmp_path):
    def row(number, parent):
        return {
            "name": f"span {number}",
            "context": {"span_id": f"0x{number:016x}", "trace_id": f"0x{TRACE}"},
            "parent_id": parent and f"0x{parent:016x}",
            "start_time": 5,
            "end_time": 7,
            "status_code": "ERROR",
            "status_message": "no",
            "attributes": {"text": '"a"', "mlflow.traceRequestId": '"tr-1"'},
            "events": [{"name": "e", "timestamp": 6, "attributes": {"n": 1}}],
        }

    trace = {"info": {"request_id": "1", "tags": {"a": "b"}}, "data": {"spans": [row(1, None), row(2, 1), row(3, 1)]}}
    whole = json.dumps(trace).encode()
    records, account = read_bytes(tmp_path, whole)
    assert (account.format, [int(span.span_id, 16) for span in records]) == ("mlflow-json", [1, 2, 3])
    assert [span.parent_span_id for span in records] == [None, f"{1:016x}", f"{1:016x}"]
    span = records[0]
    assert (span.trace_id, span.start_ns, span.end_ns, span.status, span.status_message) == (TRACE, 5, 7, "error", "no")
    assert (span.attributes, span.resource.attributes) == ({"text": "a", "art.metadata.a": "b"}, {"a": "b"})
    assert records[1].attributes == {"text": "a"}
    assert [(event.name, event.time_ns, event.attributes) for event in span.events] == [("e", 6, {"n": 1})]
