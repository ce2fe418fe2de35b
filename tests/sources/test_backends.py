"""What single fields of the backends' own formats mean."""

import base64
import json

import pytest

from tests.sources.requests import damages_of, read_bytes, reasons_of, spans_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def zipkin(folder, **fields):
    span = {"traceId": TRACE, "id": "a", "name": "n", "timestamp": 5, "duration": 2, **fields}
    records, _ = read_bytes(folder, json.dumps([span]).encode())
    return records


def jaeger(folder, processes=None, **fields):
    span = {"traceID": TRACE, "spanID": "a", "operationName": "n", "startTime": 5, "duration": 2, "processID": "p1"}
    processes = processes or {"p1": {"serviceName": "here", "tags": []}}
    trace = {"traceID": TRACE, "spans": [{**span, **fields}], "processes": processes}
    records, _ = read_bytes(folder, json.dumps({"data": [trace]}).encode())
    return records


def tag(key, kind, value):
    return {"key": key, "type": kind, "value": value}


def test_a_fraction_of_a_microsecond_keeps_its_digits(tmp_path):
    rows = {"traceID": TRACE, "spanID": "a", "startTime": 0.5, "duration": 0.25}
    zipkins = [{"traceId": TRACE, "id": "a", "timestamp": 0.5, "duration": 0.25, "tags": {}}]
    for dump in ({"data": [{"traceID": TRACE, "spans": [rows]}]}, zipkins):
        text = json.dumps(dump).replace("0.5", "1764000000000000.512").replace("0.25", "0.488")
        (span,) = read_bytes(tmp_path, text.encode())[0]
        assert (span.start_ns, span.end_ns) == (1764000000000000512, 1764000000000001000)


@pytest.mark.parametrize(
    ("value", "name", "attributes", "dropped"),
    [
        ("plain", "plain", {}, 0),
        ('"some": {"a": 1, "b": [true]}', "some", {"a": 1, "b": [True]}, 0),
        ('{"some": {"a": "x"}}', "some", {"a": "x"}, 0),
        ('some|{"a": "|}|"}|3', "some", {"a": "|}|"}, 3),
        ("some|{a}|3", "some|{a}|3", {}, 0),
        ('{"some": 1}', '{"some": 1}', {}, 0),
        ('{"some": {}, "other": {}}', '{"some": {}, "other": {}}', {}, 0),
        ('"quoted"', '"quoted"', {}, 0),
        ('{"some": {"a": ' + "[" * 9999, '{"some": {"a": ' + "[" * 9999, {}, 0),
    ],
)
def test_annotations_of_zipkin(value, name, attributes, dropped, tmp_path):
    (span,) = zipkin(tmp_path, annotations=[{"timestamp": 6, "value": value}])
    (event,) = span.events
    assert (event.name, event.attributes, event.dropped_attributes_count) == (name, attributes, dropped)
    assert event.time_ns == 6000


@pytest.mark.parametrize(
    ("tags", "status", "message", "left"),
    [
        ({}, "unset", "", {}),
        ({"error": "true"}, "error", "", {}),
        ({"error": "it broke"}, "error", "it broke", {}),
        ({"error": ""}, "error", "", {}),
        ({"error": "false"}, "unset", "", {"error": "false"}),
        ({"otel.status_code": "OK"}, "ok", "", {}),
        ({"otel.status_code": "OK", "error": "x"}, "ok", "", {"error": "x"}),
        ({"otel.status_code": "STATUS_CODE_ERROR", "otel.status_description": "d", "error": "true"}, "error", "d", {}),
        ({"otel.status_code": "Error", "error": "e"}, "error", "e", {}),
        ({"otel.status_code": "MAYBE"}, "unset", "", {"otel.status_code": "MAYBE"}),
    ],
)
def test_statuses(tags, status, message, left, tmp_path):
    (span,) = zipkin(tmp_path, tags=tags)
    assert (span.status, span.status_message, span.attributes) == (status, message, left)
    (span,) = jaeger(tmp_path, tags=[tag(name, "string", value) for name, value in tags.items()])
    assert (span.status, span.status_message, span.attributes) == (status, message, left)


def test_other_tags_of_otel(tmp_path):
    tags = {
        "otel.scope.name": "lib",
        "otel.scope.version": "1",
        "otel.library.name": "old",
        "otel.library.version": "0",
        "otel.dropped_attributes_count": "3",
        "otel.dropped_events_count": "2",
        "otel.dropped_links_count": "many",
        "span.kind": "internal",
        "otlp.link.0": f"{TRACE}|000000000000000b|a=1|{{}}|0",
        "otlp.link.1": "rubbish",
        "otlp.link.2": f"{TRACE}|000000000000000b||{{x}}|0",
    }
    (span,) = zipkin(tmp_path, tags=tags)
    assert (span.scope.name, span.scope.version, span.kind) == ("lib", "1", "internal")
    assert (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count) == (3, 2, 0)
    assert [(link.trace_id, link.span_id) for link in span.links] == [(TRACE, "000000000000000b")]
    assert set(span.attributes) == {"otel.dropped_links_count", "otlp.link.1", "otlp.link.2"}
    (span,) = zipkin(tmp_path, kind="CLIENT", tags={"span.kind": "x"})
    assert (span.kind, span.attributes) == ("client", {"span.kind": "x"})


def test_times_and_ids_of_zipkin(tmp_path):
    (span,) = zipkin(tmp_path, traceId="4e0", id="00b", parentId="c", timestamp=1.25, duration=None)
    assert (span.trace_id, span.span_id, span.parent_span_id) == (f"{0x4E0:032x}", f"{0xB:016x}", f"{0xC:016x}")
    assert (span.start_ns, span.end_ns) == (1250, None)
    (span,) = zipkin(tmp_path, localEndpoint={"serviceName": "here"})
    assert span.resource.attributes == {"service.name": "here"}


def test_a_server_that_shares_the_id_of_its_client_does_not_replace_it(tmp_path):
    (client,) = zipkin(tmp_path, parentId="b", kind="CLIENT", shared=False)
    (server,) = zipkin(tmp_path, parentId="b", kind="SERVER", shared=True, tags={"more": "x"})
    assert (client.span_id, client.parent_span_id) == (f"{0xA:016x}", f"{0xB:016x}")
    assert server.parent_span_id == client.span_id != server.span_id
    assert zipkin(tmp_path, shared=True)[0].span_id == zipkin(tmp_path, id="0a", shared=True)[0].span_id
    assert zipkin(tmp_path, id="c", shared=True)[0].span_id != server.span_id
    for bad in ("xyz", None, ""):
        assert reasons_of(zipkin(tmp_path, id=bad, shared=True)) == ["bad id"]


@pytest.mark.parametrize(
    "fields",
    [
        {"timestamp": None},
        {"timestamp": -1},
        {"timestamp": "now"},
        {"timestamp": 2**63},
        {"timestamp": 10**400},
        {"timestamp": 1e308},
        {"timestamp": float("nan")},
        {"duration": -5},
        {"kind": "SOMETHING"},
        {"tags": 5},
        {"annotations": [{"timestamp": -1, "value": "x"}]},
    ],
)
def test_bad_fields_of_zipkin(fields, tmp_path):
    records = zipkin(tmp_path, **fields)
    assert reasons_of(records) == ["bad field"]
    assert (records[0].trace_id, records[0].span_id) == (TRACE, f"{0xA:016x}")


def test_an_annotation_without_a_time_is_lost_alone(tmp_path):
    span, damage = zipkin(tmp_path, annotations=[{"value": "x"}, {"timestamp": 6, "value": "y"}])
    assert [event.name for event in span.events] == ["y"]
    assert (damage.reason, damage.partial) == ("bad field", True)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("string", "5", "5"),
        ("int64", 5, 5),
        ("int64", "9007199254740993", 9007199254740993),
        ("float64", 5, 5.0),
        ("float64", "0.5", 0.5),
        ("bool", True, True),
        ("bool", "false", False),
        ("binary", base64.b64encode(b"\xff").decode(), b"\xff"),
        ("", "any", "any"),
    ],
)
def test_types_of_jaeger(kind, value, read, tmp_path):
    (span,) = jaeger(tmp_path, tags=[tag("x", kind, value)], logs=[{"timestamp": 6, "fields": [tag("x", kind, value)]}])
    for attributes in (span.attributes, span.events[0].attributes):
        assert attributes == {"x": read}
        assert type(attributes["x"]) is type(read)


@pytest.mark.parametrize(
    ("kind", "value"), [("int64", "five"), ("float64", "x"), ("float64", 10**400), ("bool", "maybe"), ("binary", "*")]
)
def test_a_tag_that_is_not_of_its_type(kind, value, tmp_path):
    (damage,) = jaeger(tmp_path, tags=[tag("x", kind, value)])
    assert (damage.reason, damage.kind, damage.span_id) == ("bad field", "span", f"{0xA:016x}")
    assert damage.path.endswith("tags['x']")
    processes = {"p1": {"serviceName": "here", "tags": [tag("x", kind, value)]}}
    (damage,) = jaeger(tmp_path, processes)
    assert (damage.reason, damage.partial, damage.trace_id) == ("bad field", False, TRACE)


def test_references_of_jaeger(tmp_path):
    other = "f" * 32
    references = [
        {"refType": "FOLLOWS_FROM", "traceID": TRACE, "spanID": "1"},
        {"refType": "CHILD_OF", "traceID": other, "spanID": "2"},
        {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "3"},
        {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "4"},
    ]
    (span,) = jaeger(tmp_path, references=references)
    assert span.parent_span_id == f"{3:016x}"
    assert [(link.trace_id, int(link.span_id, 16)) for link in span.links] == [(TRACE, 1), (other, 2), (TRACE, 4)]
    (span,) = jaeger(tmp_path, references=references[:1])
    assert span.parent_span_id is None


def test_a_bad_span_of_jaeger_costs_no_other_and_a_bad_process_its_trace(tmp_path):
    def row(number):
        return {"traceID": TRACE, "spanID": number, "operationName": "n", "startTime": 5, "processID": "p1"}

    trace = {"traceID": TRACE, "spans": [row("a"), row("b"), row("c")], "processes": {"p1": {"serviceName": "here"}}}
    whole = json.dumps({"data": [trace]}).encode()
    records, _ = read_bytes(tmp_path, whole.replace(b'"b"', b"NaN"))
    assert [int(span.span_id, 16) for span in spans_of(records)] == [0xA, 0xC]
    assert {span.resource.attributes.get("service.name") for span in spans_of(records)} == {"here"}
    assert len(damages_of(records)) == 1
    for bad in (whole.replace(b'"here"', b"NaN"), whole.replace(b'{"p1": {"serviceName": "here"}}', b"5")):
        (damage,) = read_bytes(tmp_path, bad)[0]
        assert (damage.reason, damage.partial, damage.trace_id) == ("bad field", False, TRACE)
        assert ".dump:1 / trace" in damage.path
        assert "processes" in damage.path


@pytest.mark.parametrize("trace", [{"traceID": TRACE, "spans": 5}, {"traceID": TRACE, "spans": [5]}])
def test_no_trace_of_jaeger(trace, tmp_path):
    (damage,) = read_bytes(tmp_path, json.dumps({"data": [trace]}).encode())[0]
    assert damage.reason == "bad field"


def test_an_answer_of_jaeger_with_more_around_it(tmp_path):
    whole = {"data": [{"traceID": TRACE, "spans": []}], "total": 1.5, "limit": 0, "x": "]}", "errors": [], "y": None}
    assert read_bytes(tmp_path, json.dumps(whole, indent=1).encode())[0] == []


def test_the_errors_in_an_answer_of_jaeger_are_no_records(tmp_path):
    error = {"code": 404, "msg": "trace not found: [x]", "traceID": TRACE}
    trace = {"traceID": TRACE, "spans": [{"traceID": TRACE, "spanID": "a", "startTime": 5}], "processes": {}}
    around = {"total": 0, "limit": 0}
    answers = [
        {"data": [trace], **around, "errors": [error]},
        {"data": None, **around, "errors": [error]},
        {"data": [], "errors": [error, error], "more": []},
        {"data": [trace], **around, "errors": None},
    ]
    for indent in (None, 2):
        records, account = read_bytes(tmp_path, "\n".join(json.dumps(one, indent=indent) for one in answers).encode())
        assert (account.format, account.spans, damages_of(records)) == ("jaeger-json", 2, [])
    torn = json.dumps(answers[0]).removesuffix("]}").encode()
    assert reasons_of(read_bytes(tmp_path, torn)[0]) == ["torn"]


def clickhouse(folder, **columns):
    row = {"Timestamp": "2026-09-21 14:13:20.5", "TraceId": TRACE, "SpanId": f"{0xA:016x}", "SpanName": "n", **columns}
    later = {**row, "SpanId": f"{0xB:016x}"}
    records, account = read_bytes(folder, b"".join(json.dumps(one).encode() + b"\n" for one in (row, later)))
    assert account.format == "clickhouse"
    return records


@pytest.mark.parametrize("links", [[], [{"TraceId": TRACE, "SpanId": "c" * 16, "TraceState": "", "Attributes": {}}]])
def test_nested_columns_of_clickhouse(links, tmp_path):
    time = "2026-09-21 14:13:20.000000001"
    events = [{"Timestamp": time, "Name": name, "Attributes": {"a": "b"}} for name in ("one", "two")]
    first, second = clickhouse(tmp_path, Events=events, Links=links)
    assert (first.span_id, second.span_id) == (f"{0xA:016x}", f"{0xB:016x}")
    assert [(event.name, event.time_ns % 10, event.attributes) for event in second.events] == [
        ("one", 1, {"a": "b"}),
        ("two", 1, {"a": "b"}),
    ]
    assert [link.span_id for link in first.links] == ["c" * 16 for _ in links]


def test_phoenix_may_nest_attributes(tmp_path):
    span = {
        "id": "x",
        "name": "n",
        "context": {"trace_id": TRACE, "span_id": "00f067aa0ba902b7"},
        "span_kind": "LLM",
        "parent_id": "",
        "start_time": "2026-11-20T15:05:23.5",
        "end_time": None,
        "attributes": {"llm": {"model_name": "m"}, "openinference.span.kind": "CHAIN"},
    }
    (read,) = read_bytes(tmp_path, json.dumps(span).encode())[0]
    assert (read.parent_span_id, read.end_ns, read.start_ns) == (None, None, 1795187123500000000)
    assert read.attributes == {"llm.model_name": "m", "openinference.span.kind": "CHAIN"}
    (damage,) = read_bytes(tmp_path, json.dumps({**span, "start_time": "soon"}).encode())[0]
    assert (damage.reason, damage.span_id) == ("bad field", "00f067aa0ba902b7")
