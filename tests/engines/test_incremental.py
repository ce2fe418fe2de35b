"""An incremental conversion takes what no earlier one into the folder took: the whole is as if converted at once."""

import gzip
import os

import pytest

from art_otel import read_trajectories
from art_otel.errors import SourceError
from art_otel.store import read_manifest
from tests.conversions import RECORDINGS, convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines


def rollout(number: int):
    """The lines of a rollout."""
    spans = [make_span(1, trace=number, name="rollout x"), chat_span(2, 1, [f"q{number}"], "a", trace=number)]
    return [request_of(span) for span in spans]


def take(folder, *sources, **options):
    return convert_files(folder, *sources, incremental=True, **options)


def test_files_that_come_and_grow_are_taken_once(tmp_path):
    spool, out = tmp_path / "spool", tmp_path / "out"
    spool.mkdir()
    expected = set()
    for number in range(1, 6):
        file = spool / f"{number % 2}.otlp.jsonl"
        before = file.read_text() if file.exists() else ""
        write_lines(file, rollout(number))
        file.write_text(before + file.read_text())
        rows, report = take(out, spool)
        expected.add(f"{number:032x}")
        assert ({row.rollout_id for row in rows}, len(rows)) == (expected, number)
        assert (report.trajectories.total, report.spans.read) == (1, 2)
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    rows, report = take(out, spool)
    assert (len(rows), report.spans.read) == (5, 0)
    assert [hint.partition(":")[0] for hint in report.hints] == ["nothing is new"]
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before
    assert len(list(out.iterdir())) == 1 + len(before)
    whole, _ = convert_files(tmp_path / "whole", spool)
    assert sorted(rows, key=lambda row: row.order) == whole


def test_a_line_that_is_still_written_waits(tmp_path):
    file, out = write_lines(tmp_path / "in.jsonl", [*rollout(1), *rollout(2)]), tmp_path / "out"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert take(out, file)[1].spans.read == 3
    file.write_bytes(whole)
    assert take(out, file)[1].spans.read == 1
    file.write_bytes(whole + whole.splitlines()[0])
    assert take(out, file)[1].spans.read == 0
    os.utime(file, (1, 1))
    assert take(out, file)[1].spans.read == 1


def test_what_a_full_conversion_took_is_not_taken_again(tmp_path):
    file = write_lines(tmp_path / "in.jsonl", rollout(1))
    convert_files(tmp_path / "out", file)
    assert take(tmp_path / "out", file)[1].spans.read == 0
    assert read_manifest(str(tmp_path / "out")).ledger == {str(file): file.stat().st_size}


@pytest.mark.parametrize("change", ["shorter", "compressed"])
def test_a_file_that_was_changed_is_an_error(tmp_path, change):
    recording = RECORDINGS / "genai_span" / "error_retry.jsonl"
    file, body = tmp_path / "in", recording.read_bytes()
    file.write_bytes(body if change == "shorter" else gzip.compress(body))
    rows, _ = take(tmp_path / "out", file)
    file.write_bytes(b"{}\n" if change == "shorter" else gzip.compress(body) * 2)
    with pytest.raises(SourceError, match="was changed since it was converted"):
        take(tmp_path / "out", file)
    assert list(read_trajectories(tmp_path / "out")) == rows
