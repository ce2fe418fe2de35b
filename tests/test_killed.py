"""kill -9 during convert: no half file is ever visible, and the next run gives the bytes of an undisturbed one."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.benchmarks.dumps import write_conversations

KILLS = 12


def command(dump: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "art_otel", "convert", str(dump), "--out", str(out), "--workers", "2"]


def parts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*.parquet"))}


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dumps") / "in.jsonl"
    write_conversations(path, 120, 8)
    return path


def test_a_killed_conversion_leaves_nothing_half(dump, tmp_path):
    begin = time.monotonic()
    subprocess.run(command(dump, tmp_path / "undisturbed"), check=True, capture_output=True)
    length = time.monotonic() - begin
    chance = random.Random(0)
    out = tmp_path / "out"
    for _ in range(KILLS):
        process = subprocess.Popen(command(dump, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 1.1 * length))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in out.glob("*.parquet"):
            pq.ParquetFile(path).read()
    subprocess.run(command(dump, out), check=True, capture_output=True)
    assert parts(out) == parts(tmp_path / "undisturbed")
    assert sorted(path.name for path in out.iterdir()) == ["_report.json", *parts(out)]
