"""Splits: inputs divided for several readers lose nothing, say the right line, and give the same bytes."""

import gzip
import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.sources import FileStats, find_inputs, plan_splits, read_file
from tests.dumps import chat_span, make_span, request_of
from tests.sources.requests import damages_of

RUBBISH = '{"resourceSpans": [{"scopeSpans"'
LINES = [json.dumps(request_of(make_span(number))).encode() for number in range(1, 30)]
LONG = b" " * 10_000


def lines(rollouts=12):
    for trace in range(1, rollouts + 1):
        yield json.dumps(
            request_of(make_span(1, name="rollout", trace=trace, attributes={"art.rollout.id": f"r{trace}"}))
        )
        yield json.dumps(request_of(chat_span(2, 1, [f"q{trace}"], "a", trace=trace)))
    yield RUBBISH


def records_of(splits):
    return [record for split in splits for source in split for record in read_file(source, FileStats())]


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30), max_size=30),
    split_bytes=st.integers(1, 400),
)
def test_every_byte_is_in_one_split(tmp_path_factory, texts, split_bytes):
    dump = tmp_path_factory.mktemp("splits") / "in.jsonl"
    body = "".join(f"{text}\n" for text in ['{"resourceSpans":[]}', *texts, '{"resourceSpans":[]}']).encode()
    dump.write_bytes(body)
    splits = plan_splits(find_inputs([dump]), split_bytes)
    assert splits == plan_splits(find_inputs([dump]), split_bytes) == pickle.loads(pickle.dumps(splits))
    parts = [source.byte_range for split in splits for source in split]
    spans = [(0, len(body)) if part is None else (part.start, part.end) for part in parts]
    assert b"".join(body[start:end] for start, end in spans) == body
    assert all(body[start - 1 : start] in (b"", b"\n") for start, _ in spans)


def test_small_files_are_put_together_in_their_order_and_large_ones_are_cut(tmp_path):
    for name in "abcd":
        (tmp_path / f"{name}.jsonl").write_bytes(LINES[0] + b"\n")
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(LINES) + b"\n")
    splits = plan_splits(find_inputs([tmp_path]), len(LINES[0]) * 11)
    assert [[source.path.stem for source in split] for split in splits] == [["a", "b"], ["c"], ["c"], ["c", "d"]]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"resourceSpans": [{"scopeSpans": []}] * 40}, indent=1).encode(),
        gzip.compress(b"\n".join(LINES), 0),
        bytes(pa.Codec("zstd", -100).compress(b"\n".join(LINES))),
    ],
    ids=["one document", "gzip through which its text shines", "zstd through which its text shines"],
)
def test_what_cannot_be_cut_stays_whole(data, tmp_path):
    (tmp_path / "in.dump").write_bytes(data)
    inputs = find_inputs([tmp_path / "in.dump"])
    assert plan_splits(inputs, 300) == [tuple(inputs)]


@pytest.mark.parametrize(
    "between",
    [(b"rubbish" + LONG + b"\n") * 400, (LONG + b"\n") * 400, (b'{"data":[{"traceID":"5"}]}' + LONG + b"\n") * 400],
    ids=["rubbish", "blank lines", "another format"],
)
def test_a_part_is_of_the_format_of_its_file(between, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(LINES) + b"\n" + between + b"\n".join(LINES))
    inputs = find_inputs([path])
    splits = plan_splits(inputs, inputs[0].size // 3)
    assert len(splits) == 2  # no line between them begins a record
    assert records_of(splits) == list(read_file(inputs[0], FileStats()))


def test_a_damage_has_its_line_in_the_whole_file(tmp_path):
    dump = tmp_path / "in.jsonl"
    dump.write_text("\n".join(lines()) + "\n")
    inputs = find_inputs([dump])
    last = plan_splits(inputs, inputs[0].size // 3)[-1][0]
    assert last.byte_range.start > 0
    (damage,) = damages_of(read_file(last, FileStats()))
    assert damage.path.partition(" / ")[0] == f"{dump}:25"


@pytest.mark.parametrize("count", [20_000, pytest.param(2_000_000, marks=pytest.mark.flood)])
@pytest.mark.parametrize("blank", ["\n", "\r\n", "\n \t"])
def test_millions_of_blank_lines_are_looked_at_once(blank, count, tmp_path):
    first, last = list(lines())[:2]
    dump = tmp_path / "in.jsonl"
    dump.write_text(f"{first}\n" + blank * count + f"\n{RUBBISH}\n{last}\n", newline="")
    inputs = find_inputs([dump])
    records = records_of(plan_splits(inputs, inputs[0].size // 3))
    assert [type(record).__name__ for record in records] == ["Span", "Quarantined", "Span"]
    assert records[1].path.startswith(f"{dump}:{count + 3}")
