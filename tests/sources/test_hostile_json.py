"""A bad span costs no other span: not in its file, not in its line. Each bad piece is one Quarantined that names it."""

import json

import pytest

from art_otel.spans import LogRecord, Quarantined, Span
from tests.sources.requests import (
    TRACE,
    attributes,
    damages_of,
    lines,
    log,
    logs,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    traces,
)

BAD = f"{0xBAD:016x}"


def bad(**fields):
    return span(0xBAD, **fields)


def raw(text: bytes, **fields) -> bytes:
    """A bad span in which the text @@ (with its quotes) is replaced."""
    return json.dumps(bad(**fields)).encode().replace(b'"@@"', text)


def deep(levels: int, opener: bytes, closer: bytes, inside=b'{"intValue":1}') -> bytes:
    return raw(opener * levels + inside + closer * levels, attributes=[{"key": "deep", "value": "@@"}])


LIST = (b'{"arrayValue":{"values":[', b"]}}")
DICT = (b'{"kvlistValue":{"values":[{"key":"k","value":', b"}]}}")

SPANS: dict[str, tuple[bytes, str, str]] = {
    "short trace id": (raw(b'"abcd"', traceId="@@"), "bad id", "traceId"),
    "no hex": (raw(b'"zzzzzzzzzzzzzzzz"', spanId="@@"), "bad id", "spanId"),
    "digits of another script": (raw(json.dumps("१" * 16).encode(), spanId="@@"), "bad id", "spanId"),
    "zero id": (raw(b'"00000000000000000000000000000000"', traceId="@@"), "bad id", "traceId"),
    "no id": (b'{"name":"x","startTimeUnixNano":"1"}', "bad id", "traceId"),
    "bad parent id": (raw(b'"12"', parentSpanId="@@"), "bad id", "parentSpanId"),
    "id of another type": (raw(b"12", traceId="@@"), "bad field", "traceId"),
    "backwards": (raw(b'"1"', endTimeUnixNano="@@"), "ends before it starts", "endTimeUnixNano"),
    "no start": (raw(b"null", startTimeUnixNano="@@"), "bad field", "startTimeUnixNano"),
    "huge time": (raw(b"1" * 40, startTimeUnixNano="@@"), "bad field", "startTimeUnixNano"),
    "time beyond 63 bits": (raw(b'"18446744073709551615"', endTimeUnixNano="@@"), "bad field", "endTimeUnixNano"),
    "negative time": (raw(b"-1", startTimeUnixNano="@@"), "bad field", "startTimeUnixNano"),
    "huge integer": (
        raw(b'"9223372036854775808"', **attributes(good={"intValue": 1}, big={"intValue": "@@"})),
        "bad field",
        "attributes[1].value.intValue",
    ),
    "integer that is text": (
        raw(b'"one"', **attributes(one={"intValue": "@@"})),
        "bad field",
        "attributes[0].value.intValue",
    ),
    "text that is a number": (
        raw(b"5", **attributes(one={"stringValue": "@@"})),
        "bad field",
        "attributes[0].value.stringValue",
    ),
    "key that is a number": (raw(b"5", attributes=[{"key": "@@"}]), "bad field", "attributes[0].key"),
    "no base64": (raw(b'"a*b"', **attributes(one={"bytesValue": "@@"})), "bad field", 'attributes["one"]'),
    "attributes of another type": (raw(b'"oops"', attributes="@@"), "bad field", "attributes"),
    "unknown kind": (raw(b"99", kind="@@"), "bad field", "kind"),
    "unknown status": (raw(b'{"code":"MAYBE"}', status="@@"), "bad field", "status.code"),
    "event time": (raw(b'"x"', events=[{"timeUnixNano": "@@"}]), "bad field", "events[0].timeUnixNano"),
    "NaN for a name": (raw(b"NaN", name="@@"), "bad field", "name"),
    "33 lists": (deep(33, *LIST), "nested too deep", 'attributes["deep"]'),
    "33 dicts": (deep(33, *DICT), "nested too deep", 'attributes["deep"]'),
}


def line_of(*spans: bytes) -> bytes:
    """A request of spans in which some are no JSON."""
    whole = json.dumps(traces(*range(len(spans)))).encode()
    return whole.replace(json.dumps(list(range(len(spans)))).encode(), b"[" + b", ".join(spans) + b"]") + b"\n"


GOOD = [json.dumps(span(number, name='{"traceId": \'')).encode() for number in (1, 2, 3)]


@pytest.mark.parametrize("name", SPANS)
def test_one_bad_span_in_a_line(name, tmp_path):
    text, reason, where = SPANS[name]
    data = line_of(GOOD[0], text, GOOD[1], text, GOOD[2])
    records, account = read_bytes(tmp_path, lines(traces(span(4))) + data + lines(traces(span(5))))
    assert [int(read.span_id, 16) for read in spans_of(records)] == [4, 1, 2, 3, 5]
    for damage in damages_of(records):
        assert (damage.reason, damage.kind, damage.partial) == (reason, "span", False)
        assert damage.path.startswith(f"{tmp_path}/in.dump:2")
        assert damage.path.endswith(where)
        assert len(damage.detail) <= 300
        damage_ids_are_told(damage, name)
    assert {read.resource.attributes["service.name"] for read in spans_of(records)} == {"here"}
    assert {read.scope.name for read in spans_of(records)} == {"lib"}
    assert (account.spans, account.quarantined) == (5, 2)


def damage_ids_are_told(damage, name):
    traceless = {"short trace id", "zero id", "no id", "id of another type"}
    assert damage.trace_id == (None if name in traceless else TRACE)
    spanless = {"no hex", "digits of another script", "no id"}
    assert damage.span_id == (None if name in spanless else BAD)
    if damage.trace_id and damage.span_id:
        assert f" / trace {TRACE} / span {BAD}" in damage.path


@pytest.mark.parametrize("levels", [31, 32])
@pytest.mark.parametrize("kind", [LIST, DICT])
def test_nested_as_deep_as_allowed(kind, levels, tmp_path):
    ((read,), _) = read_bytes(tmp_path, line_of(deep(levels, *kind)))
    assert isinstance(read, Span)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", '"NaN"', '"-Infinity"'])
def test_a_number_that_is_not_finite_is_lost_and_its_span_kept(number, tmp_path):
    values = attributes(
        **{
            "art.reward": {"doubleValue": "@@"},
            "l": {"arrayValue": {"values": [{"doubleValue": "@@"}, {"intValue": 1}]}},
        }
    )
    text = raw(number.encode(), events=[{"timeUnixNano": "1", **attributes(e={"doubleValue": "@@"})}], **values)
    records, account = read_bytes(tmp_path, line_of(GOOD[0], text, GOOD[1]))
    assert [type(record) for record in records] == [Span, Span, Quarantined, Span]
    _, kept, damage, _ = records
    assert kept.attributes == {"art.reward": None, "l": [None, 1]}
    assert kept.events[0].attributes == {"e": None}
    assert (damage.reason, damage.partial, damage.trace_id, damage.span_id) == ("not a finite number", True, TRACE, BAD)
    assert damage.path == f'{tmp_path}/in.dump:1 / trace {TRACE} / span {BAD} / attributes["art.reward"]'
    assert damage.detail == 'also: attributes["l"], events[0].attributes["e"]'
    assert (account.spans, account.quarantined, account.partly_quarantined) == (3, 0, 1)


LINES: dict[str, tuple[bytes, str]] = {
    "words": (b"this is not JSON", "not JSON"),
    "a brace and words": (b"{not json, whatever", "not JSON"),
    "rubbish bytes": (b"\xff\xfe\x00\x01", "not JSON"),
    "an open text": (b'"abc', "not JSON"),
    "zeros": (bytes(99), "not JSON"),
    "other JSON": (b'{"hello":"world"}', "not OTLP"),
    "other JSON in a list": (b'[{"hello":"world"}]', "not OTLP"),
    "a list of numbers": (b"[5]", "not OTLP"),
    "another type": (b'{"resourceSpans":5}', "not OTLP"),
    "deep nowhere": (b"[" * 50_000 + b"]" * 50_000, "nested too deep"),
    "deep in a request": (b'{"resourceSpans":[],"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deep"),
    "open brackets": (b"[" * 50_000, "nested too deep"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_bad_line(name, tmp_path):
    line, reason = LINES[name]
    good = lines(traces(span(1)))
    for data, number in ((good + line + b"\n" + good, 2), (line + b"\n" + good + good, 1), (good + good + line, 3)):
        records, account = read_bytes(tmp_path, data)
        assert len(spans_of(records)) == account.spans == 2
        (damage,) = damages_of(records)
        assert (damage.reason, damage.kind, damage.partial) == (reason, "unknown", False)
        assert damage.path.partition(" / ")[0] == f"{tmp_path}/in.dump:{number}"


def test_a_last_line_cut_anywhere(tmp_path):
    first, last = lines(traces(span(1))), lines(traces(span(2), span(3)))
    for cut in range(1, len(last) - 2):
        records, _ = read_bytes(tmp_path, first + last[:cut])
        kept, (damage,) = spans_of(records), damages_of(records)
        assert damage.reason == "torn"
        assert damage.kind == "unknown"
        assert len(kept) == 1 + last[:cut].count(b"2000") - last[:cut].endswith((b"2000", b'2000"'))
    assert (damage.trace_id, damage.span_id) == (None, None)
    cut = last.rindex(b"startTime")
    (damage,) = damages_of(read_bytes(tmp_path, first + last[:cut])[0])
    assert (damage.trace_id, damage.span_id) == (TRACE, f"{3:016x}")


def test_a_request_glued_to_what_another_writer_left_torn(tmp_path):
    torn = lines(traces(span(1), span(2), span(9)))[:-120]
    records, _ = read_bytes(tmp_path, torn + lines(traces(span(3)), traces(span(4))))
    assert [read.span_id[-1] for read in spans_of(records)] == ["1", "2", "3", "4"]
    assert reasons_of(records) == ["torn"]
    records, _ = read_bytes(tmp_path, lines(traces(span(1)))[:-1] + lines(traces(span(2))))
    assert len(spans_of(records)) == len(records) == 2


def test_a_bad_resource_or_scope_costs_no_span(tmp_path):
    request = traces(span(1), span(2))
    batch = request["resourceSpans"][0]
    batch["resource"]["attributes"].append({"key": "bad", "value": {"intValue": "x"}})
    batch["scopeSpans"][0]["scope"]["name"] = 5
    records, account = read_bytes(tmp_path, lines(request))
    assert [read.resource.attributes for read in spans_of(records)] == [{}, {}]
    assert [(damage.reason, damage.kind, damage.partial) for damage in damages_of(records)] == [
        ("bad field", "unknown", True)
    ] * 2
    assert [damage.path.split(" / ")[1] for damage in damages_of(records)] == [
        "resource.attributes[1].value.intValue",
        "scope.name",
    ]
    assert account.quarantined == 0


@pytest.mark.parametrize("value", [{"doubleValue": "NaN"}, {"bytesValue": "*"}])
def test_a_bad_value_in_a_resource(value, tmp_path):
    request = traces(span(1))
    request["resourceSpans"][0]["resource"]["attributes"].append({"key": "bad", "value": value})
    damage, read = read_bytes(tmp_path, lines(request))[0]
    assert damage.partial
    assert damage.path.endswith(' / resource.attributes["bad"]')
    assert read.resource.attributes in ({"service.name": "here", "bad": None}, {})


def test_a_record_that_loses_very_much_says_so_once_for_each_reason(tmp_path):
    many = span(2, events=[{}] * 100_000, links=[{}] * 100_000)
    nothing = {"key": "a", "value": {"doubleValue": "NaN"}}
    records, account = read_bytes(tmp_path, lines(traces(span(1), {**many, "attributes": [nothing]})))
    assert (len(spans_of(records)), account.partly_quarantined) == (2, 3)
    assert {damage.reason: damage.detail[:33] for damage in damages_of(records)} == {
        "not a finite number": "",
        "bad field": "also: events[1].timeUnixNano, eve",
        "bad id": "also: links[1], links[2], links[3",
    }


def test_bad_log_records(tmp_path):
    records, account = read_bytes(
        tmp_path,
        lines(logs(log(), log(spanId="x"), log(timeUnixNano="0"), log(body={"bytesValue": "*"}), log()))
        + lines(logs(log(), log(eventName=5), log(traceId=None))),
    )
    assert reasons_of(records) == ["bad id", "bad field", "bad field", "bad field"]
    assert {damage.kind for damage in damages_of(records)} == {"log"}
    keys = [record.key for record in records if isinstance(record, LogRecord)]
    assert (len(keys), keys.count(("", "")), account.logs_without_span) == (4, 1, 1)
