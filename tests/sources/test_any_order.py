"""The order of names says nothing either: a bad span in JSON that `jq -S` has sorted costs no other span."""

import json

import pytest

from tests.dumps import make_span
from tests.sources.requests import damages_of, numbers, read_bytes
from tests.sources.test_hostile_backends import BACKENDS, dump

SORTABLE = [name for name in BACKENDS if name not in ("console", "clickhouse", "phoenix-dataframe")]


def sorted_dump(name: str, *spans: dict, indent: int | None = None) -> bytes:
    data = dump(name, *spans)
    try:
        return json.dumps(json.loads(data), sort_keys=True, indent=indent).encode()
    except ValueError:
        return b"\n".join(json.dumps(json.loads(line), sort_keys=True).encode() for line in data.splitlines())


@pytest.mark.parametrize(("trace", "span"), [("cd", "ab"), ("CD", "AB"), ("Cd", "00000000000000Ab")])
def test_a_parent_of_jaeger_in_any_case_and_length(trace, span, tmp_path):
    parent = {"refType": "CHILD_OF", "traceID": trace, "spanID": span}
    child = {"traceID": "cD", "spanID": "1", "operationName": "n", "startTime": 5, "references": [parent]}
    (read,) = read_bytes(tmp_path, json.dumps({"data": [{"traceID": "cD", "spans": [child]}]}).encode())[0]
    assert (read.trace_id, read.parent_span_id, read.links) == (f"{0xCD:032x}", f"{0xAB:016x}", ())


@pytest.mark.parametrize("name", [name for name in SORTABLE if "in lines" not in name])
@pytest.mark.parametrize("write", [dump, sorted_dump])
def test_joined_files_with_a_byte_order_mark_each(write, name, tmp_path):
    data = b"\n".join(b"\xef\xbb\xbf" + write(name, make_span(number, trace=number)) for number in (1, 2, 3))
    records, _ = read_bytes(tmp_path, data)
    assert (numbers(records), damages_of(records)) == ([1, 2, 3], [])
