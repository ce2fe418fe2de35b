"""history.jsonl holds whole rows, whatever crashed and whoever else writes."""

import json
import logging
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel import RunLog, read_trajectories
from art_otel.runlog.history import append_row, means_by_step, read_rows
from art_otel.trajectories import Trajectory

ROWS = [{"step": step, "val/reward": step / 4} for step in range(3)]


@pytest.fixture
def history(tmp_path) -> Path:
    path = tmp_path / "history.jsonl"
    for row in ROWS:
        append_row(path, row)
    return path


def test_without_a_file_there_are_no_rows(tmp_path):
    assert list(read_rows(tmp_path / "history.jsonl")) == []


def test_a_row_that_a_crash_cut_anywhere_is_taken_away(history, caplog):
    caplog.set_level(logging.WARNING)
    whole = history.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(start + 1, len(whole) - 1):
        caplog.clear()
        history.write_bytes(whole[:end])
        assert list(read_rows(history)) == ROWS[:2]
        append_row(history, {"step": 9})
        assert list(read_rows(history)) == [*ROWS[:2], {"step": 9}]
        assert pl.read_ndjson(history).height == 3
        assert f"its last {end - start} bytes" in caplog.text


def test_a_whole_row_without_its_end_is_kept(history):
    history.write_bytes(history.read_bytes()[:-1])
    append_row(history, {"step": 9})
    assert list(read_rows(history)) == [*ROWS, {"step": 9}]


def test_a_file_that_is_nothing_but_a_torn_row_begins_anew(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\0" * 4096)
    append_row(path, {"step": 0})
    assert list(read_rows(path)) == [{"step": 0}]


def test_damaged_lines_cost_no_others(history, caplog):
    bad = [b"{", b"[1]", b"\xff", b'{"step": 1' + b"0" * 5000 + b"}", b"[" * 100_000, b"7", b"null"]
    history.write_bytes(history.read_bytes() + b"\n \n" + b"\n".join([*bad, b'{"step": 3}']))
    assert list(read_rows(history)) == [*ROWS, {"step": 3}]
    assert len(caplog.records) == len(bad)
    assert f"{history}:6: not a row" in caplog.text


def test_values_that_are_no_finite_numbers_are_in_no_mean():
    values = ["1", None, True, [1], float("nan"), float("inf"), 10**400]
    rows = [{"step": 1, "m": value} for value in values]
    rows += [{"step": step, "m": 9.0} for step in (None, "1", 1.0, True)]
    assert means_by_step(rows, "m") == {}
    assert means_by_step([*rows, {"m": 1}, {"step": 1, "m": 1}, {"step": 1, "m": 2}, {"step": 2}], "m") == {1: 1.5}


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b'{"step": 1}', b"\n", b'{"a": "'])))
def test_a_row_is_found_again_after_anything(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "history.jsonl"
    path.write_bytes(b"".join(junk))
    append_row(path, {"step": 7, "text": "line\nend\u2028"})
    assert list(read_rows(path))[-1] == {"step": 7, "text": "line\nend\u2028"}


FULL_DISK = """
import resource, sys
from pathlib import Path
from art_otel.runlog.history import append_row
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    append_row(path, {"step": 9, "long": "x" * 100})
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("room", [0, 50])
def test_a_row_that_the_disk_has_no_room_for_is_not_there_at_all(history, room):
    before = history.read_bytes()
    command = [sys.executable, "-c", FULL_DISK, str(history), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("no space for a row", "File too large")
    assert history.read_bytes() == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != len(before)


LOGGING = """
import sys
from art_otel import RunLog, Trajectory
run_log = RunLog("p", "m", sys.argv[1], report_metrics=[])
for step in range(20):
    rollout = Trajectory(rollout_id=sys.argv[2], trace_id="0" * 32, reward=1.0, metadata={"pad": "x" * 20_000})
    run_log.log([rollout], sys.argv[3], step, {f"pad{number}": number for number in range(1000)})
"""


@pytest.mark.long
@pytest.mark.parametrize("splits", [("val", "val"), ("train", "val")])
def test_processes_that_log_at_once_keep_whole_rows(tmp_path, splits):
    commands = [
        [sys.executable, "-c", LOGGING, str(tmp_path), name, split] for name, split in zip("ab", splits, strict=True)
    ]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in running:
        _, complaints = process.communicate()
        assert process.returncode == 0, complaints
    run_log = RunLog("p", "m", tmp_path, report_metrics=[])
    lines = run_log.folder.history.read_text().splitlines()
    assert sorted(json.loads(line)["step"] for line in lines) == sorted([*range(20)] * 2)
    files = sorted(run_log.folder.path.glob("trajectories/*/*"))
    assert [file.suffix for file in files] == [".parquet"] * 20 * len(set(splits))
    assert all(len(list(read_trajectories(file))) == 1 for file in files)


def test_threads_that_log_at_once_keep_whole_rows(tmp_path):
    run_log = RunLog("p", "m", tmp_path, report_metrics=[])
    rollout = Trajectory(rollout_id="a", trace_id="0" * 32, reward=1.0)
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda step: run_log.log([rollout], "train", step % 4), range(32)))
    assert sorted(row["step"] for row in run_log.history()) == sorted(entry.step for entry in entries)
    assert len(list(run_log.folder.path.glob("trajectories/train/*"))) == 4


def test_a_killed_writer_leaves_a_log_that_goes_on(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", LOGGING, str(tmp_path), "a", "train"])
    run_log = RunLog("p", "m", tmp_path, report_metrics=[])
    while process.poll() is None and len(run_log.history()) < 3:
        os.sched_yield()
    process.kill()
    process.wait()
    before = len(run_log.history())
    run_log.log(metrics={"reward": 1.0}, split="val", step=99)
    assert before >= 3
    assert len(run_log.history()) == before + 1
    assert pl.read_ndjson(run_log.folder.history)["step"].to_list()[-1] == 99
