"""A spool is a dump like any other, also when somebody wrote it anew, altered or cut it."""

import json
from pathlib import Path

import pytest

from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Quarantined, Span
from tests.conversions import convert_files
from tests.tracing.sdk.spans import Traced


def spool_of_three(folder: Path) -> Path:
    app = Traced(folder)
    for number in range(3):
        with app.rollout("größer", f"r{number}"):
            app.call(f"question {number}")
    (path,) = (folder / "spool").iterdir()
    return path


@pytest.mark.parametrize("separators", [(",", ":"), None])
def test_a_spool_that_somebody_wrote_anew_is_read(tmp_path, separators):
    path = spool_of_three(tmp_path)
    expected, _ = convert_files(tmp_path / "before", path)
    values = map(json.loads, path.read_bytes().splitlines())
    path.write_text("".join(json.dumps(value, separators=separators) + "\n" for value in values))
    trajectories, report = convert_files(tmp_path / "out", path)
    assert trajectories == expected
    assert report.spans.quarantined == {}


@pytest.mark.parametrize(("whole", "broken"), [(b"question 1", b'ques"tion 1'), (b'"resource":{', b'"resource":{{')])
def test_an_altered_line_that_is_not_whole_costs_itself_only(tmp_path, whole, broken):
    path = spool_of_three(tmp_path)
    head, tail = path.read_bytes().split(b"question 1", 1)
    line = head.rindex(b"\n")
    end = tail.index(b"\n")
    altered = (head[line:] + b"question 1" + tail[:end]).replace(whole, broken)
    path.write_bytes(head[:line] + altered + tail[end:])
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "spool")
    assert report.spans.quarantined == {"not JSON": 1}
    assert report.files[0].note is None
    assert [trajectory.complete for trajectory in trajectories] == [True, False, True]
    assert "question 2" in str(trajectories[2].calls)


def test_a_torn_tail_costs_itself_only(tmp_path):
    app = Traced(tmp_path)
    for number in range(2):
        with app.rollout("agent", f"r{number}"):
            app.call("q")
    (path,) = (tmp_path / "spool").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    records = list(read_file(find_inputs([path])[0], FileStats()))
    assert sum(isinstance(record, Span) for record in records) + sum(isinstance(r, Quarantined) for r in records) == 8
