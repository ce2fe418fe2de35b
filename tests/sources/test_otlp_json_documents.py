"""White space says nothing: requests in lines, over several lines and in lists are the same, in parts too."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.sources import FileStats, Limits, find_inputs, plan_splits, read_file
from art_otel.spans import Span
from tests.sources.requests import damages_of, log, logs, numbers, read_bytes, reasons_of, span, spans_of, traces
from tests.sources.test_laws import laws

BOM = "\ufeff"
SEPARATOR = "\x1e"
"""Before each text of a sequence (RFC 7464)."""


def enveloped(request) -> str:
    return json.dumps({"trace": request}, indent=2)


def listed(request) -> str:
    return "[" + ",\n".join(json.dumps(one) for one in (request, logs(log()), {"resourceMetrics": []})) + "]"


def list_of_pretty(request) -> str:
    return json.dumps([request, logs(log())], indent=2)


WRITINGS = {
    "line": json.dumps,
    "compact": lambda request: json.dumps(request, separators=(",", ":")),
    "pretty": lambda request: json.dumps(request, indent=2),
    "opened before a colon": lambda request: json.dumps(request).replace(":", "\n:", 1),
    "in an envelope": enveloped,
    "list": listed,
    "list of pretty ones": list_of_pretty,
    "with other names first": lambda request: json.dumps({"from": "here", **request}),
}
ENDS = ["\n", "\r\n", "\n\n", "\n" + BOM, "\n" + SEPARATOR]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("first", WRITINGS)
def test_one_writing_after_another(first, end, tmp_path):
    written = [first, *(name for second in WRITINGS for name in (second, second, first))]
    texts = [
        WRITINGS[name](traces(span(number, name="{[ \\ }"), span(number + 100)))
        for number, name in enumerate(written, 1)
    ]
    if end == "\r\n":
        texts = [text.replace("\n", end) for text in texts]
    start = SEPARATOR if end.endswith(SEPARATOR) else ""
    records, _ = read_bytes(tmp_path, (start + end.join(texts)).encode())
    assert numbers(records) == [number for at in range(1, len(written) + 1) for number in (at, at + 100)]
    assert not damages_of(records)


@laws
@given(
    written=st.lists(st.tuples(st.sampled_from(sorted(WRITINGS)), st.sampled_from(ENDS)), min_size=1, max_size=8),
    count=st.integers(1, 4),
)
def test_parts_of_any_size_give_the_same(written, count, tmp_path):
    texts = [
        WRITINGS[name](traces(span(number), span(number + 100))) + end for number, (name, end) in enumerate(written, 1)
    ]
    path = tmp_path / "in.dump"
    path.write_text("".join(texts), newline="")
    splits = plan_splits(find_inputs([path]), 1 + path.stat().st_size // count)
    records = [record for split in splits for one in split for record in read_file(one, FileStats())]
    expected = [number for at in range(1, len(written) + 1) for number in (at, at + 100)]
    assert (numbers(records), damages_of(records)) == (expected, [])


@pytest.mark.parametrize("name", WRITINGS)
def test_a_bad_span_costs_no_other(name, tmp_path):
    texts = [WRITINGS[name](traces(span(at), span(at + 10, name="@@"), span(at + 20))) for at in (1, 2, 3)]
    data = "\n".join(texts).encode().replace(b'"@@"', b"5", 1).replace(b"@@", rb"\ud83d", 1).replace(b"@@", b"x\xff")
    records, account = read_bytes(tmp_path, data)
    assert sorted(numbers(records)) == [1, 2, 3, 12, 13, 21, 22, 23]
    assert (reasons_of(records), account.replaced) == (["bad field"], 2)


@pytest.mark.parametrize("name", WRITINGS)
def test_a_broken_document_costs_itself(name, tmp_path):
    texts = [WRITINGS[name](traces(span(at), span(at + 10, name="@@"))) for at in (1, 2, 3)]
    for bad in (b"[1}", b'"a"b"', b'"a\x01"', b"[" * 9999 + b"]" * 9999):
        data = "\n".join(texts).encode().replace(b'"@@"', b'"x"', 1).replace(b'"@@"', bad, 1)
        records, _ = read_bytes(tmp_path, data)
        assert {1, 11, 3, 13} <= set(numbers(records)) <= {1, 11, 3, 13, 2}
        assert damages_of(records)


@pytest.mark.parametrize("following", WRITINGS)
def test_a_torn_document_costs_no_other(following, tmp_path):
    torn = json.dumps(traces(span(1), span(2, name="two")), indent=2)
    last = WRITINGS[following](traces(span(3), span(4)))
    for cut in range(torn.index("two"), 10, -9):
        records, _ = read_bytes(tmp_path, f"{torn[:cut]}\n{last}\n".encode())
        assert numbers(records)[-2:] == [3, 4]
        assert reasons_of(records) in (["torn"], ["not JSON"])


def test_a_document_over_the_limit_costs_no_other(tmp_path):
    texts = [json.dumps(traces(span(at, name="x" * (99 if at != 2 else 2 << 20))), indent=1) for at in (1, 2, 3)]
    texts.append(json.dumps(traces(span(4))))
    limits = Limits(max_message_bytes=1 << 20)
    records, _ = read_bytes(tmp_path, "\n".join(texts).encode(), limits=limits)
    assert [type(record) is Span for record in records] == [True, False, True, True]
    (damage,) = damages_of(records)
    assert (damage.reason, damage.path.rpartition(":")[2]) == ("over a limit", str(texts[0].count("\n") + 2))


def test_a_damage_has_its_line_after_documents(tmp_path):
    pretty = json.dumps(traces(span(1)), indent=1)
    records, _ = read_bytes(tmp_path, f"{pretty}\n{pretty}\n{json.dumps(traces(span(2)))}\nrubbish\n".encode())
    assert len(spans_of(records)) == 3
    assert damages_of(records)[0].path.endswith(f"in.dump:{2 * (pretty.count(chr(10)) + 1) + 2}")
