"""OTLP JSON that its writer changed, or its way: fields as protobuf has them, parts of requests, containers, UTF-16."""

import gzip
import itertools
import json
import re

import pytest

from art_otel.spans import LogRecord, Quarantined, Span
from tests.sources.requests import attributes, damages_of, lines, log, logs, numbers, read_bytes, span, traces

TEXT = {"arrayValue": {"values": [{"kvlistValue": {"values": [{"key": "a_b", "value": {"stringValue": "c_d ☃ 😀"}}]}}]}}
REQUESTS = [
    *(
        traces(span(number, **attributes(some_name=TEXT, other={"intValue": "7"})), span(number + 1))
        for number in (1, 3)
    ),
    logs(log(body=TEXT)),
    traces(span(5), span(6)),
]
PLAIN = lines(*REQUESTS)


def snake(value):
    """The fields as protobuf has them; what is a value stays."""
    if isinstance(value, list):
        return list(map(snake, value))
    if not isinstance(value, dict):
        return value
    return {re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name): snake(one) for name, one in value.items()}


def resources(request):
    return [part for batches in request.values() for part in batches]


def scopes(request):
    return [part for shared in resources(request) for part in shared.get("scopeSpans") or shared["scopeLogs"]]


def records(request):
    return [part for scoped in scopes(request) for part in scoped.get("spans") or scoped["logRecords"]]


def parts(data: bytes, size=100):
    """The lines, long ones in parts, as the logs of containers have them."""
    for text in data.decode().splitlines(keepends=True):
        yield from (text[at : at + size] for at in range(0, len(text), size))


def docker(data: bytes, stream="stdout"):
    return [
        json.dumps({"log": part, "stream": stream, "time": "2026-11-01T00:00:00Z"}).encode() + b"\n"
        for part in parts(data)
    ]


def cri(data: bytes):
    for part in parts(data):
        line = part.rstrip("\n")
        yield f"2026-11-01T00:00:00.1Z stdout {'P' if part == line else 'F'} {line}\n".encode()


WAYS = {
    "snake_case": lines(*map(snake, REQUESTS)),
    "a list of snake_case": json.dumps(snake(REQUESTS)).encode(),
    "a ResourceSpans a line": lines(*(part for request in REQUESTS for part in resources(request))),
    "a ScopeSpans a line": lines(*(part for request in REQUESTS for part in scopes(request))),
    "a span a line": lines(*(part for request in REQUESTS for part in records(request))),
    "a snake_case span a line": lines(*(snake(part) for request in REQUESTS for part in records(request))),
    "docker": b"".join(docker(PLAIN)),
    "docker, as it writes itself": b"".join(docker(PLAIN)).replace(b'": "', b'":"').replace(b'", "', b'","'),
    "docker, beside stderr": b"".join(
        itertools.chain(*itertools.zip_longest(docker(PLAIN), docker(b"x" * 900 + b"\n", "stderr"), fillvalue=b""))
    ),
    "docker, compressed by rotation": gzip.compress(b"".join(docker(PLAIN))),
    "Kubernetes": b"".join(cri(PLAIN)),
    "UTF-16 of PowerShell": PLAIN.replace(b"\n", b"\r\n").decode().encode("utf-16"),
    "big-endian UTF-16": b"\xfe\xff" + PLAIN.decode().encode("utf-16-be"),
}
LOSES_SHARED = {"a ScopeSpans a line", "a span a line", "a snake_case span a line"}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_records(way, tmp_path):
    expected, _ = read_bytes(tmp_path, PLAIN, "plain.jsonl")
    got, account = read_bytes(tmp_path, WAYS[way], "other.log")
    assert account.format == "otlp-json"
    assert account.quarantined == (way == "docker, beside stderr")  # what it printed is no JSON
    got = [one for one in got if not isinstance(one, Quarantined)]
    assert numbers(got) == numbers(expected)
    for one, other in zip(got, expected, strict=True):
        assert (one.attributes, one.trace_id, one.span_id) == (other.attributes, other.trace_id, other.span_id)
        if isinstance(one, LogRecord):
            assert one.body == other.body
        if isinstance(one, Span) and way not in LOSES_SHARED:
            assert one == other


def test_a_span_that_names_its_resource_and_scope(tmp_path):
    shared = attributes(**{"service.name": {"stringValue": "here"}})
    (one,), _ = read_bytes(tmp_path, lines(span(1, resource=shared, scope={"name": "lib"})))
    assert (one.resource.attributes, one.scope.name) == ({"service.name": "here"}, "lib")


def test_what_is_bad_costs_itself(tmp_path):
    bad = span(9, kind="no kind")
    torn = json.dumps(span(7)).encode()[:90]
    got, _ = read_bytes(tmp_path, lines(snake(span(1)), snake(bad), {"level": "info"}, span(2)) + torn)
    assert numbers(got) == [1, 2]
    assert sorted(damage.reason for damage in damages_of(got)) == ["bad field", "not OTLP", "torn"]
    got, _ = read_bytes(tmp_path, PLAIN.decode().encode("utf-16")[:-201])
    assert numbers(got) == [1, 2, 3, 4, 5]
    assert [damage.reason for damage in damages_of(got)] == ["torn"]


def test_what_is_no_record_is_no_format(tmp_path):
    """Spans of others have a name and times, too: MLflow's, whose attributes are no list."""
    other = {"trace_id": "a", "span_id": "b", "start_time_unix_nano": 1, "attributes": {"a": 1}}
    with pytest.raises(Exception, match="no known format"):
        read_bytes(tmp_path, lines(other))
