"""OTLP JSON as collectors, SDKs and people write it."""

import json
import math

import pytest
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link as SdkLink
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from art_otel.sources import FileStats, Limits, find_inputs, read_file
from art_otel.spans import Event, Link, Quarantined, Resource, Scope, Span
from tests.sources.requests import (
    TRACE,
    attributes,
    damages_of,
    lines,
    log,
    logs,
    logs_of,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    traces,
)

VALUES = {
    "text": ({"stringValue": "ü\u2028"}, "ü\u2028"),
    "word": ({"stringValue": "null"}, "null"),
    "yes": ({"boolValue": True}, True),
    "number": ({"intValue": "-9223372036854775808"}, -(2**63)),
    "half": ({"doubleValue": 0.5}, 0.5),
    "textual": ({"doubleValue": "1e3"}, 1000.0),
    "raw": ({"bytesValue": "-_8"}, b"\xfb\xff"),
    "nothing": ({}, None),
    "null": ({"stringValue": None}, None),
    "some": ({"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": 1}, {}]}}, ["a", 1, None]),
    "pairs": (
        {"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": False}}, {"key": "n"}]}},
        {"k": False, "n": None},
    ),
    "no_items": ({"arrayValue": {}}, []),
    "no_pairs": ({"kvlistValue": {"values": None}}, {}),
}
"""By the name of an attribute: what is written and what is read."""


def test_every_field_of_a_span(tmp_path):
    everything = span(
        0xAB,
        traceId=TRACE.upper(),
        parentSpanId="00000000000000CD",
        kind="SPAN_KIND_CLIENT",
        status={"code": "STATUS_CODE_ERROR", "message": "no"},
        events=[{"timeUnixNano": 1500, "name": "e", **attributes(a={"intValue": 1}), "droppedAttributesCount": 4}],
        links=[{"traceId": TRACE, "spanId": f"{9:016x}", **attributes(why={"stringValue": "x"})}],
        droppedAttributesCount=1,
        droppedEventsCount=2,
        droppedLinksCount=3,
        traceState="ignored",
        **attributes(**{name: written for name, (written, _) in VALUES.items()}),
    )
    (read,), _ = read_bytes(tmp_path, lines(traces(everything)))
    assert read == Span(
        trace_id=TRACE,
        span_id=f"{0xAB:016x}",
        parent_span_id=f"{0xCD:016x}",
        name="span 171",
        kind="client",
        start_ns=1000,
        end_ns=2000,
        attributes={name: read for name, (_, read) in VALUES.items()},
        events=(Event(name="e", time_ns=1500, attributes={"a": 1}, dropped_attributes_count=4),),
        links=(Link(trace_id=TRACE, span_id=f"{9:016x}", attributes={"why": "x"}),),
        status="error",
        status_message="no",
        scope=Scope(name="lib", version="1"),
        resource=Resource(attributes={"service.name": "here"}),
        dropped_attributes_count=1,
        dropped_events_count=2,
        dropped_links_count=3,
    )


@pytest.mark.parametrize("absent", ["", None, "0" * 16])
def test_no_parent_no_end_and_null_for_absent(absent, tmp_path):
    nothing = dict.fromkeys(
        ("endTimeUnixNano", "kind", "status", "attributes", "events", "links", "name", "droppedLinksCount")
    )
    request = {"resourceSpans": [{"scopeSpans": [{"scope": None, "spans": [span(parentSpanId=absent, **nothing)]}]}]}
    (read,), _ = read_bytes(tmp_path, lines(request))
    assert read == Span(trace_id=TRACE, span_id=f"{1:016x}", name="", start_ns=1000, end_ns=None)


def test_spans_of_a_batch_share_their_resource_and_scope(tmp_path):
    first, second = read_bytes(tmp_path, lines(traces(span(1), span(2))))[0]
    assert first.resource is second.resource
    assert first.scope is second.scope


def test_log_records(tmp_path):
    body = {"kvlistValue": {"values": [{"key": "role", "value": {"stringValue": "user"}}]}}
    named = attributes(**{"event.name": {"stringValue": "by attribute"}})
    old = log(eventName=None, timeUnixNano=None, observedTimeUnixNano="7", body=body, **named)
    mixed = {**traces(span()), **logs(log(), old, log(eventName=""), {"timeUnixNano": "1"}, log(spanId="0" * 16))}
    records, account = read_bytes(tmp_path, lines(mixed))
    first, second, third, spanless = logs_of(records)
    assert (first.event_name, first.time_ns, first.body) == ("e", 5, None)
    assert (second.event_name, second.time_ns, second.body) == ("by attribute", 7, {"role": "user"})
    assert third.event_name == ""
    assert (spanless.event_name, spanless.key) == ("e", ("", ""))
    assert (account.spans, account.log_records, account.logs_without_span) == (1, 3, 2)


def test_other_signals_and_empty_requests_are_no_damage(tmp_path):
    requests = [{"resourceMetrics": [{"scopeMetrics": []}]}, {}, {"resourceSpans": []}, {"resourceSpans": None}]
    records, account = read_bytes(tmp_path, lines(*requests, b"", b"   ", traces(span())))
    assert len(records) == 1
    assert account.other_signals == 1


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
def test_a_document(indent, listed, start, tmp_path):
    requests = [traces(span(1)), logs(log()), traces(span(2))]
    document = json.dumps(requests if listed else requests[0], indent=indent)
    records, _ = read_bytes(tmp_path, (start + document).encode())
    assert len(records) == (3 if listed else 1)
    assert not damages_of(records)


def test_limits(tmp_path):
    long = traces(span(2, name="x" * 5000))
    limits = Limits(max_message_bytes=2000)
    records, _ = read_bytes(tmp_path, lines(traces(span(1)), long, traces(span(3))), limits=limits)
    assert [type(record) for record in records] == [Span, Quarantined, Span]
    assert (records[1].reason, records[1].kind, records[1].path.endswith(":2")) == ("over a limit", "unknown", True)
    records, _ = read_bytes(tmp_path, json.dumps(long, indent=1).encode(), limits=limits)
    assert reasons_of(records) == ["over a limit"]
    huge = lines(traces(span(1))) + b" " * (3 << 20)
    assert reasons_of(read_bytes(tmp_path, huge, limits=limits)[0]) == ["over a limit"]


def test_on_bytes_is_told_every_byte(tmp_path):
    told: list[int] = []
    _, account = read_bytes(tmp_path, lines(traces(span())) * 9000, on_bytes=told.append)
    assert sum(told) == account.bytes == (tmp_path / "in.dump").stat().st_size
    assert len(told) > 2


def test_what_the_sdk_writes(tmp_path):
    path = tmp_path / "sdk.jsonl"
    provider = TracerProvider(resource=SdkResource({"service.name": "sdk", "n": 3}))
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(path)))
    tracer = provider.get_tracer("lib", "2")
    values = {"s": "t", "b": True, "i": 2**62, "d": 0.25, "nan": math.nan, "l": ["a", "b"], "n": [1, 2], "f": [1.5]}
    context = SpanContext(trace_id=7, span_id=8, is_remote=True)
    with (
        tracer.start_as_current_span("root", kind=SpanKind.SERVER) as root,
        tracer.start_as_current_span("x", attributes=values, links=[SdkLink(context, {"a": 1})]) as made,
    ):
        made.add_event("e", {"k": "v"}, timestamp=99)
        made.set_status(Status(StatusCode.ERROR, "why"))
    provider.shutdown()
    records, account = read_bytes(tmp_path, path.read_bytes())
    child, lost, parent = records
    assert child.attributes == {**values, "nan": None}
    assert (lost.reason, lost.partial) == ("not a finite number", True)
    assert child.events == (Event(name="e", time_ns=99, attributes={"k": "v"}),)
    assert child.links == (Link(trace_id=f"{7:032x}", span_id=f"{8:016x}", attributes={"a": 1}),)
    assert (child.status, child.status_message, child.kind) == ("error", "why", "internal")
    assert child.parent_span_id == parent.span_id == f"{root.get_span_context().span_id:016x}"
    assert (parent.kind, parent.parent_span_id, parent.status) == ("server", None, "unset")
    assert (child.start_ns, child.end_ns) == (made.start_time, made.end_time)
    assert child.resource.attributes == {"service.name": "sdk", "n": 3}
    assert child.scope == Scope(name="lib", version="2")
    assert (account.spans, account.quarantined, account.partly_quarantined) == (2, 0, 1)


def test_a_list_of_numbers_and_others(tmp_path):
    items = [
        {"intValue": "6"},
        {"stringValue": "x", "intValue": "5"},
        {"intValue": 0},
        {},
        {"doubleValue": 1.5, "intValue": "7"},
        {"doubleValue": 1.5},
        {"arrayValue": {"values": [{"intValue": "-1"}]}},
    ]
    records, _ = read_bytes(tmp_path, lines(traces(span(**attributes(n={"arrayValue": {"values": items}})))))
    assert spans_of(records)[0].attributes == {"n": [6, "x", 0, None, 7, 1.5, [-1]]}


def test_ids_of_spans_that_follow_each_other(tmp_path):
    upper = TRACE.upper()
    traced = [upper, upper, TRACE, "", upper, "0" * 32, None, TRACE]
    parents = ["ABCDEF0123456789", "abcdef0123456789", "", None, "ABCDEF0123456789", "x", "x", "0" * 16]
    spans = [
        span(number, traceId=trace_id, parentSpanId=parent)
        for number, (trace_id, parent) in enumerate(zip(traced, parents, strict=True), 1)
    ]
    records, _ = read_bytes(tmp_path, lines(traces(*spans)))
    assert [(found.trace_id, found.parent_span_id) for found in spans_of(records)] == [
        (TRACE, "abcdef0123456789"),
        (TRACE, "abcdef0123456789"),
        (TRACE, None),
        (TRACE, "abcdef0123456789"),
        (TRACE, None),
    ]
    assert reasons_of(records) == ["bad id"] * 3


STRAYS = {
    "vocab.json": json.dumps({f"word{number}": number for number in range(100_000)}),
    "package.json": json.dumps(
        {"name": "agent", "version": "1", "dependencies": {"traceId": "1", "id": "2"}}, indent=2
    ),
    "README.md": 'Set "resourceSpans": [] in {"resource": 1}',
    "blanks.txt": " " * (2 << 20),
}


@pytest.mark.parametrize("name", STRAYS)
def test_a_file_without_records_in_a_folder_gives_nothing(name, tmp_path):
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / name).write_text(STRAYS[name])
    (source,) = find_inputs([tmp_path / "dumps"])
    account = FileStats()
    assert list(read_file(source, account)) == []
    assert (account.format, account.note) == (None, "empty" if name == "blanks.txt" else "no known format")
