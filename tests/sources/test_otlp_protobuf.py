"""OTLP protobuf in both framings gives what the same data gives as JSON."""

import json

import pytest

from art_otel.sources import Limits
from art_otel.spans import Quarantined, Span
from tests.sources.requests import (
    COMPRESSORS,
    DUMPS,
    RECORDINGS,
    attributes,
    batch_of,
    damages_of,
    field,
    lines,
    log,
    logs,
    prefixed,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    to_protobuf,
    traces,
)

FRAMINGS = {"bare": b"".join, "prefixed": lambda messages: prefixed(*messages)}
SHORT = [dump for dump in DUMPS if dump.name in {"sync_tools.jsonl", "sync_tools.logs.jsonl", "error_retry.jsonl"}]


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: f"{dump.parent.name}-{dump.name}")
def test_a_recording_in_protobuf_equals_the_recording(dump, tmp_path):
    messages = [to_protobuf(json.loads(line)) for line in dump.read_text().splitlines()]
    expected, _ = read_bytes(tmp_path, dump.read_bytes())
    for framed in FRAMINGS.values():
        records, account = read_bytes(tmp_path, framed(messages))
        assert records == expected
        assert (account.format, account.quarantined) == ("otlp-protobuf", 0)


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_compressed(framing, compression, tmp_path):
    messages = [to_protobuf(traces(span(number))) for number in (1, 2)]
    records, account = read_bytes(tmp_path, COMPRESSORS[compression](FRAMINGS[framing](messages)))
    assert len(spans_of(records)) == 2
    assert (account.format, account.compression) == ("otlp-protobuf", compression)


def test_every_kind_of_value_is_the_same_in_both_encodings(tmp_path):
    values = {
        "text": {"stringValue": "ü"},
        "yes": {"boolValue": True},
        "number": {"intValue": str(-(2**63))},
        "half": {"doubleValue": 0.5},
        "raw": {"bytesValue": "+/8="},
        "nothing": {},
        "some": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": "1"}, {}]}},
        "pairs": {"kvlistValue": {"values": [{"key": "k", "value": {"doubleValue": "NaN"}}, {"key": "n"}]}},
        "odd": {"arrayValue": {"values": [{"doubleValue": "Infinity"}, {"doubleValue": "-Infinity"}]}},
        "empty": {"arrayValue": {}},
    }
    one = span(
        **attributes(**values),
        events=[{"timeUnixNano": "1500", "name": "e", **attributes(x={"doubleValue": "NaN"})}, {"name": "no time"}],
        links=[{"traceId": "00" * 16, "spanId": "00" * 8}],
    )
    request = traces(one)
    in_json, _ = read_bytes(tmp_path, lines(request))
    in_protobuf, _ = read_bytes(tmp_path, prefixed(to_protobuf(request)))
    assert in_json[0] == in_protobuf[0]
    assert reasons_of(in_json) == ["not a finite number", "bad field", "bad id"]
    assert [str(piece.path).split(" / ")[1:] for piece in in_json[1:]] == [
        piece.path.split(" / ")[1:] for piece in in_protobuf[1:]
    ]
    assert all(piece.partial for piece in in_json[1:])
    body = logs(log(body={"kvlistValue": {"values": [{"key": "k", "value": {"doubleValue": "NaN"}}]}}), log(traceId=""))
    first, _ = read_bytes(tmp_path, lines(body))
    second, account = read_bytes(tmp_path, to_protobuf(body))
    assert first[0] == second[0]
    assert first[1].path.endswith(" / body")
    assert account.logs_without_span == 1


def test_traces_logs_and_metrics_are_told_apart_on_the_wire(tmp_path):
    gauge = field(1, b"requests") + field(2, b"how many there were") + field(5, b"")
    observed = log(timeUnixNano="0", observedTimeUnixNano="9", severityNumber=9)
    messages = [to_protobuf(traces(span())), to_protobuf(logs(observed)), batch_of(gauge), b"", to_protobuf(traces())]
    records, account = read_bytes(tmp_path, prefixed(*messages))
    assert (account.spans, account.log_records, account.other_signals, account.quarantined) == (1, 1, 1, 0)
    assert records[1].time_ns == 9


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_file_that_ends_inside_a_message(framing, tmp_path):
    messages = [to_protobuf(traces(span(1), span(2))), to_protobuf(traces(span(3), span(4)))]
    data = FRAMINGS[framing](messages)
    for cut in range(len(FRAMINGS[framing](messages[:1])) + 1, len(data)):
        records, _ = read_bytes(tmp_path, data[:cut])
        assert reasons_of(records) == ["torn"]
        assert damages_of(records)[0].kind == "unknown"
        assert [read.span_id for read in spans_of(records)] == [f"{number:016x}" for number in (1, 2, 3)][
            : len(records) - 1
        ]
        assert len(records) >= 3
    assert damages_of(records)[0].span_id == f"{4:016x}"


def test_an_answer_of_tempo_is_no_request(tmp_path):
    good = [to_protobuf(traces(span(number), span(number + 10))) for number in (1, 2, 3)]
    records, _ = read_bytes(tmp_path, field(1, good[0]) + field(2, b"\x08\x05"))
    assert set(reasons_of(records)) == {"not OTLP"}
    assert "JSON" in damages_of(records)[0].detail
    records, _ = read_bytes(tmp_path, prefixed(good[0], field(1, good[1]), good[2]))
    assert (len(spans_of(records)), reasons_of(records)) == (4, ["not OTLP"])


def test_a_request_without_spans_is_empty(tmp_path):
    records, account = read_bytes(tmp_path, to_protobuf(traces()))
    assert (records, account.format) == ([], "otlp-protobuf")
    batch = to_protobuf({"resourceSpans": [{"resource": attributes(a={"stringValue": "b"})}]})
    assert read_bytes(tmp_path, batch)[0] == []


def test_messages_over_the_limit(tmp_path):
    messages = [
        to_protobuf(traces(span(1))),
        to_protobuf(traces(span(2, name="x" * 5000))),
        to_protobuf(traces(span(3))),
    ]
    limits = Limits(max_message_bytes=2000)
    for data in (prefixed(*messages), b"".join(messages)):
        records, _ = read_bytes(tmp_path, data, limits=limits)
        assert [type(record) for record in records] == [Span, Quarantined, Span]
        assert (records[1].reason, records[1].path.split(":")[-1]) == ("over a limit", "message 2")
    lying = prefixed(messages[0]) + b"\xff\xff\xff\xff" + messages[2]
    assert reasons_of(read_bytes(tmp_path, lying, limits=limits)[0]) == ["over a limit"]


def test_rubbish_between_messages(tmp_path):
    good = to_protobuf(traces(span(1)))
    records, _ = read_bytes(tmp_path, prefixed(good, b"not a message", good, b"\x08\x01", good))
    assert [type(record) for record in records] == [Span, Quarantined, Span, Quarantined, Span]
    assert set(reasons_of(records)) == {"not OTLP"}
    records, _ = read_bytes(tmp_path, prefixed(b"rubbish first", good))
    assert [type(record) for record in records] == [Quarantined, Span]
    records, _ = read_bytes(tmp_path, good + b"rubbish")
    assert [type(record) for record in records] == [Span, Quarantined]
    records, _ = read_bytes(tmp_path, good + b"\x0a" + b"\xff" * 20)
    assert reasons_of(records) in (["torn"], ["not OTLP"], ["over a limit"])


def test_a_newline_first_is_no_protobuf(tmp_path):
    data = b"\n\n" + (RECORDINGS / "genai_span" / "n2.jsonl").read_bytes()
    assert read_bytes(tmp_path, data)[1].format == "otlp-json"
