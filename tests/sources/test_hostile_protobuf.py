"""In protobuf, too, a bad span costs no other span of its message, as invalid UTF-8 that Go and C++ write."""

import pytest

from art_otel.spans import LogRecord, Quarantined, Span
from tests.sources.requests import (
    TRACE,
    attributes,
    batch_of,
    damages_of,
    field,
    lines,
    prefixed,
    read_bytes,
    reasons_of,
    span,
    spans_of,
    to_protobuf,
    traces,
    varint,
)

BAD = f"{0xBAD:016x}"
TRACE_FIELD = field(1, bytes.fromhex(TRACE))
SPAN_FIELD = field(2, bytes.fromhex(BAD))
IDS = TRACE_FIELD + SPAN_FIELD
TIMES = b"\x39" + (1000).to_bytes(8, "little") + b"\x41" + (2000).to_bytes(8, "little")
INT = b"\x18\x01"


def nested(levels: int, kind: str) -> bytes:
    parts = [INT]
    size = len(INT)
    for _ in range(levels):
        for number in (1, 5) if kind == "list" else (2, 1, 6):
            before = field(1, b"k") if kind == "dict" and number == 2 else b""
            head = before + varint(number << 3 | 2) + varint(size)
            parts.append(head)
            size += len(head)
    return b"".join(reversed(parts))


def deep(levels: int, kind: str) -> bytes:
    return IDS + TIMES + field(9, field(1, b"deep") + field(2, nested(levels, kind)))


SPANS: dict[str, tuple[bytes, str]] = {
    "invalid UTF-8 in a name": (IDS + TIMES + field(5, b"\xff\xfe"), "invalid UTF-8"),
    "invalid UTF-8 in a value": (IDS + TIMES + field(9, field(1, b"a") + field(2, field(1, b"\xff"))), "invalid UTF-8"),
    "50,000 dicts": (deep(50_000, "dict"), "nested too deep"),
    "short trace id": (field(1, b"ab") + SPAN_FIELD + TIMES, "bad id"),
    "zero id": (TRACE_FIELD + field(2, bytes(8)) + TIMES, "bad id"),
    "bad parent id": (IDS + field(4, b"abc") + TIMES, "bad id"),
    "no start": (IDS + TIMES[9:], "bad field"),
    "huge time": (IDS + b"\x39" + b"\xff" * 8, "bad field"),
    "unknown kind": (IDS + TIMES + b"\x30\x63", "bad field"),
    "a field that goes beyond": (IDS + TIMES + b"\x2a\x7fab", "bad field"),
    "a group that is never closed": (IDS + TIMES + b"\x2b", "bad field"),
    "a number without end": (IDS + TIMES + b"\x30" + b"\xff" * 11, "bad field"),
}


def good(number: int) -> bytes:
    return field(1, bytes.fromhex(TRACE)) + field(2, number.to_bytes(8)) + TIMES


@pytest.mark.parametrize("name", SPANS)
def test_one_bad_span_in_a_message(name, tmp_path):
    text, reason = SPANS[name]
    message = batch_of(good(1), text, good(2), text, good(3))
    for data, place in (
        (prefixed(batch_of(good(4)), message, batch_of(good(5))), "message 2"),
        (batch_of(good(4)) + message + batch_of(good(5)), "message 2"),
    ):
        records, account = read_bytes(tmp_path, data)
        assert [type(record) for record in records] == [Span, Span, Quarantined, Span, Quarantined, Span, Span]
        for damage in damages_of(records):
            assert (damage.reason, damage.kind, damage.partial) == (reason, "span", False)
            assert damage.path.startswith(f"{tmp_path}/in.dump:{place}")
            assert damage.trace_id == (None if name == "short trace id" else TRACE)
            assert damage.span_id == (None if name == "zero id" else BAD)
        assert (account.spans, account.quarantined) == (5, 2)


def test_a_number_that_is_not_finite_is_lost_and_its_span_kept(tmp_path):
    values = attributes(**{"art.reward": {"doubleValue": "NaN"}, "other": {"doubleValue": "-Infinity"}})
    request = traces(span(1), span(0xBAD, **values), span(2))
    records, account = read_bytes(tmp_path, to_protobuf(request))
    assert records[1].attributes == {"art.reward": None, "other": None}
    assert (records[2].reason, records[2].partial) == ("not a finite number", True)
    assert records[2].path.endswith(f'message 1 / trace {TRACE} / span {BAD} / attributes["art.reward"]')
    assert (account.spans, account.quarantined, account.partly_quarantined) == (3, 0, 1)
    in_json, _ = read_bytes(tmp_path, lines(request))
    assert spans_of(in_json) == spans_of(records)


def test_a_resource_that_does_not_decode_costs_its_batch(tmp_path):
    bad = field(1, field(1, b"\xff") + field(2, INT))
    scoped = field(2, field(2, good(1)) + field(2, good(2)))
    records, account = read_bytes(tmp_path, prefixed(field(1, field(1, bad) + scoped) + batch_of(good(3))))
    assert reasons_of(records) == ["invalid UTF-8", "invalid UTF-8"]
    assert all(damage.kind == "span" and damage.trace_id == TRACE for damage in damages_of(records))
    assert (account.spans, account.quarantined) == (1, 2)


def test_bad_log_records_in_a_message(tmp_path):
    ids = field(9, bytes.fromhex(TRACE)) + field(10, bytes.fromhex(BAD))
    record = b"\x09" + (5).to_bytes(8, "little") + ids
    message = batch_of(record, record + field(12, b"\xff"), record + field(5, nested(200, "list")), record)
    records, _ = read_bytes(tmp_path, prefixed(message, message[:-4]))
    assert [type(one) for one in records] == [
        *(LogRecord, Quarantined, Quarantined, LogRecord),
        *(LogRecord, Quarantined, Quarantined, Quarantined),
    ]
    first, second, *_, last = damages_of(records)
    assert (first.reason, first.kind, first.trace_id, first.span_id) == ("invalid UTF-8", "log", TRACE, BAD)
    assert second.reason == "nested too deep"
    assert last.kind == "unknown"


def test_lengths_that_lie(tmp_path):
    whole = batch_of(good(1), good(2))
    lying = field(1, field(2, field(2, good(1)) + b"\x12\x7f" + good(2)))
    records, _ = read_bytes(tmp_path, prefixed(whole, lying, field(1, b"\x0a\x7fab"), field(1, b"\x02\x00"), whole))
    assert len(spans_of(records)) == 5
    assert reasons_of(records) == ["not OTLP"] * 3
    assert damages_of(records)[0].span_id == f"{2:016x}"


def test_torn_metrics_cost_nothing_and_torn_lengths_are_told(tmp_path):
    gauge = batch_of(field(1, b"requests") + field(2, b"how many there were") + field(5, bytes(50)))
    records, _ = read_bytes(tmp_path, prefixed(batch_of(good(1)), gauge)[:-5])
    assert reasons_of(records) == []
    for tail in (b"\x00", b"\x00\x00\x00\x09"):
        assert reasons_of(read_bytes(tmp_path, prefixed(batch_of(good(1))) + tail)[0]) == ["torn"]
    for tail in (b"\x0a", b"\x0a\xff"):
        assert reasons_of(read_bytes(tmp_path, batch_of(good(1)) + tail)[0]) == ["torn"]
