"""Shares: files cut for several readers lose nothing, say the right line, and give the same bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.sources import FileAccount, find_inputs, read_file, share_inputs
from art_otel.sources.files import parts
from tests.conversions import convert_files
from tests.dumps import chat_span, make_span, request_of

RUBBISH = '{"resourceSpans": [{"scopeSpans"'


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "MIN_PART_BYTES", 1)


def lines(rollouts=12):
    for trace in range(1, rollouts + 1):
        yield json.dumps(
            request_of(make_span(1, name="rollout", trace=trace, attributes={"art.rollout.id": f"r{trace}"}))
        )
        yield json.dumps(request_of(chat_span(2, 1, [f"q{trace}"], "a", trace=trace)))
    yield RUBBISH


def shares_of(source, count):
    inputs = find_inputs([source])
    return share_inputs(inputs, count)


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30), max_size=30),
    count=st.integers(1, 5),
)
def test_every_line_is_in_one_share(tmp_path_factory, texts, count):
    dump = tmp_path_factory.mktemp("shares") / "in.jsonl"
    body = "".join(f"{text}\n" for text in ['{"resourceSpans":[]}', *texts, '{"resourceSpans":[]}']).encode()
    dump.write_bytes(body)
    pieces = [part for share in shares_of(dump, count) for part in share]
    spans = [(0, len(body)) if piece.part is None else (piece.part.start, piece.part.end) for piece in pieces]
    assert b"".join(body[start:end] for start, end in spans) == body
    assert all(body[start - 1 : start] in (b"", b"\n") for start, _ in spans)


def test_files_are_shared_in_their_order(tmp_path):
    for name in "abcd":
        (tmp_path / f"{name}.jsonl").write_text('{"resourceSpans":[]}\n')
    shares = share_inputs(find_inputs([tmp_path]), 2)
    assert [[source.path.stem for source in share] for share in shares] == [["a", "b"], ["c", "d"]]


def test_what_cannot_be_cut_stays_whole(tmp_path):
    document = tmp_path / "in.json"
    document.write_text(json.dumps({"resourceSpans": [{"scopeSpans": []}] * 40}, indent=1))
    assert [part.part for share in shares_of(document, 3) for part in share] == [None]


def test_a_damage_has_its_line_in_the_whole_file(tmp_path):
    dump = tmp_path / "in.jsonl"
    dump.write_text("\n".join(lines()) + "\n")
    last = shares_of(dump, 3)[-1][0]
    assert last.part.start > 0
    damages = [record for record in read_file(last, FileAccount()) if not hasattr(record, "name") and record.reason]
    assert [damage.path.partition(" / ")[0] for damage in damages] == [f"{dump}:25"]


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_readers_gives_the_same(tmp_path, count):
    dump = tmp_path / "in.jsonl"
    dump.write_text("\n".join(lines()) + "\n")
    alone, alone_report = convert_files(tmp_path / "alone", dump, workers=1)
    shared, shared_report = convert_files(tmp_path / "shared", dump, workers=count)
    assert len(alone) == 12
    assert shared == alone
    assert (tmp_path / "shared/part-00000.parquet").read_bytes() == (tmp_path / "alone/part-00000.parquet").read_bytes()
    assert shared_report == alone_report


@pytest.mark.parametrize("blank", ["\n", "\r\n", "\n \t"])
def test_millions_of_blank_lines_are_looked_at_once(blank, tmp_path):
    first, last = list(lines())[:2]
    dump = tmp_path / "in.jsonl"
    dump.write_text(f"{first}\n" + blank * 2_000_000 + f"\n{RUBBISH}\n{last}\n", newline="")
    shares = shares_of(dump, 3)
    records = [record for share in shares for part in share for record in read_file(part, FileAccount(path=part.name))]
    assert [type(record).__name__ for record in records] == ["Span", "Quarantined", "Span"]
    assert records[1].path.startswith(f"{dump}:2000003")
