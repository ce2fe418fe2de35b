"""Convert beside a naive floor, each in a process of its own: MB/s, calls/s, CPU seconds, peak memory, stored size.

uv run python -m tests.benchmarks.convert [--scale 1.0] [--folder DIR]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.dumps import write_conversations

CASES = {"1000 x 8": (1000, 8), "60 x 64": (60, 64)}


class Measured(NamedTuple):
    """One run of one program."""

    wall: float
    cpu: float
    peak_mb: float
    stored: int


def measure(command: list[str], out: Path) -> Measured:
    """Run a command and measure it and what it stored."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{command} failed")
    files = [out] if out.is_file() else sorted(out.glob("*.parquet"))
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, sum(f.stat().st_size for f in files))


def run_case(name: str, rollouts: int, calls: int, folder: Path) -> None:
    """Generate, measure all, print."""
    dump = folder / "dump.jsonl"
    write_conversations(dump, rollouts, calls)
    size = dump.stat().st_size
    floor_out = folder / "floor.parquet"
    convert = [sys.executable, "-m", "art_otel", "convert", str(dump), "--out"]
    rows = {
        "floor": ([sys.executable, "-m", "tests.benchmarks.floor", str(dump), str(floor_out)], floor_out.name),
        "art-otel": ([*convert, str(folder / "one")], "one"),
        "2 workers": ([*convert, str(folder / "two"), "--workers", "2"], "two"),
    }
    print(f"\n{name} calls, {size / 1e6:.0f} MB")
    print(f"{'':>10} {'MB/s':>7} {'calls/s':>8} {'CPU s':>6} {'peak MB':>8} {'dump/stored':>12} {'x floor':>8}")
    floor: Measured | None = None
    for label, (command, out) in rows.items():
        best = min((measure(command, folder / out) for _ in range(2)), key=lambda found: found.wall)
        floor = floor or best
        print(
            f"{label:>10} {size / 1e6 / best.wall:7.0f} {rollouts * calls / best.wall:8.0f} {best.cpu:6.1f}"
            f" {best.peak_mb:8.0f} {size / best.stored:12.1f} {floor.wall / best.wall:8.2f}"
        )
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of rollouts")
    parser.add_argument("--folder", type=Path, help="where dumps and datasets are written (default: temporary)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, (rollouts, calls) in CASES.items():
            run_case(name, max(1, int(rollouts * arguments.scale)), calls, Path(folder))


if __name__ == "__main__":
    main()
