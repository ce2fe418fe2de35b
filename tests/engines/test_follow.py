"""`convert --follow` goes on with what others write, may be killed at any moment, and ends when it is told to."""

import gzip
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from art_otel import read_trajectories
from art_otel.engines import Conversion, Times
from art_otel.engines.incremental import follow
from art_otel.errors import StoreError
from art_otel.store import read_manifest
from tests.conversions import convert_files
from tests.dumps import request_of, write_lines
from tests.engines.test_incremental import counted, late_reward
from tests.engines.test_incremental_law import rows
from tests.examples import kills

KILLS = kills(6)


def begin(spool: Path, out: Path, *options: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "art_otel",
        "convert",
        str(spool),
        "--out",
        str(out),
        "--follow",
        "--every",
        "0.1s",
    ]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def append(file: Path, requests) -> None:
    """As a spool grows: line by line."""
    file.parent.mkdir(exist_ok=True)
    whole = write_lines(file.with_name(".new"), requests).read_bytes()
    with file.open("ab") as lines:
        lines.write(whole)


def until(condition, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def found(out: Path) -> list[str]:
    with suppress(StoreError):
        return [row.rollout_id for row in read_trajectories(out)]
    return []


@pytest.mark.kill
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_takes_what_comes_and_ends_when_it_is_told(tmp_path, how):
    spool, out = tmp_path / "spool", tmp_path / "out"
    process = begin(spool, out)
    until(lambda: "nothing to read" in process.stderr.readline(), process)  # the app has not begun
    append(spool / "0.otlp.jsonl", counted(1, 2))
    until(lambda: found(out) == ["r1"], process)
    append(spool / "0.otlp.jsonl", counted(2, 2))
    until(lambda: found(out) == ["r1", "r2"], process)
    process.send_signal(how)
    told, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "art-otel: stopped\n")
    assert [line.partition("  ")[2] for line in told.splitlines()] == [
        "3 spans read, 1 trajectories added, 0 spans wait"
    ] * 2


@pytest.mark.kill
def test_killed_at_any_moment_nothing_is_lost_and_nothing_doubled(tmp_path):
    spool, out, chance = tmp_path / "spool", tmp_path / "out", Random(0)
    number = 0
    for _ in range(KILLS):
        process = begin(spool, out)
        end = time.monotonic() + chance.uniform(0.5, 4.0)
        while time.monotonic() < end:
            number += 1
            requests = [*counted(number, 3), late_reward(chance.randint(1, number), number / 8)]
            chance.shuffle(requests)
            append(spool / f"{number % 3}.otlp.jsonl", requests[:2])
            time.sleep(chance.uniform(0, 0.2))
            append(spool / f"{number % 2}.otlp.jsonl", requests[2:])
        process.kill()
        process.communicate()
        assert len(set(found(out))) == len(found(out))
    conversion = Conversion(sources=[str(spool)], out=out, times=Times(grace=0.0))
    follow(conversion, every=0.0, tell=lambda _: None, warn=pytest.fail, rounds=2)
    whole, _ = convert_files(tmp_path / "whole", spool)
    assert rows(read_trajectories(out)) == rows(whole)
    assert len(whole) == number
    left = {path.name.partition("-")[0] for path in out.iterdir()}
    assert left <= {"_report.json", "part", "_kept", "_pending"}


def test_what_cannot_be_read_is_told_once_and_the_rest_goes_on(tmp_path):
    spool, out, said = tmp_path / "spool", tmp_path / "out", []
    conversion = Conversion(sources=[str(spool)], out=out)
    follow(conversion, every=0.0, tell=said.append, warn=said.append, rounds=3)
    assert len(said) == 1
    for number in range(3):
        write_lines(spool / "a.otlp.jsonl", counted(number + 1, 3 - number))  # a collector begins its file anew
        follow(conversion, every=0.0, tell=lambda _: None, warn=pytest.fail, rounds=2)
    (spool / "a.otlp.jsonl").unlink()  # as a spool's retention does
    write_lines(spool / "b.otlp.jsonl", map(request_of, ()))
    follow(conversion, every=0.0, tell=lambda _: None, warn=pytest.fail, rounds=2)
    assert sorted(found(out)) == ["r1", "r2", "r3"]


def test_small_parts_are_put_together(tmp_path, monkeypatch):
    monkeypatch.setattr("art_otel.engines.incremental._MOST_SMALL", 3)
    spool, out = tmp_path / "spool", tmp_path / "out"
    for number in range(1, 10):
        append(spool / "a.otlp.jsonl", counted(number, 1))
        follow(Conversion(sources=[str(spool)], out=out), every=0.0, tell=lambda _: None, warn=pytest.fail, rounds=1)
    assert len(found(out)) == 9
    assert len(read_manifest(str(out)).parts) <= 4


def test_a_file_that_was_replaced_by_one_of_its_size_is_read_again(tmp_path):
    file, out, sizes = tmp_path / "spool" / "a.otlp.jsonl.gz", tmp_path / "out", set()
    for number in (1, 2):
        lines = write_lines(tmp_path / "lines", counted(number, 1)).read_bytes()
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress(lines, 0, mtime=0))
        os.utime(file, (number, number))
        sizes.add(file.stat().st_size)
        follow(Conversion(sources=[str(file)], out=out), every=0.0, tell=lambda _: None, warn=pytest.fail, rounds=2)
    assert len(sizes) == 1
    assert sorted(found(out)) == ["r1", "r2"]
