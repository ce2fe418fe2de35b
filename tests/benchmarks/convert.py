"""Convert beside a naive floor, each in a process of its own: MB/s, calls/s, CPU seconds, peak memory, stored size.

Each is measured as an installed program runs, whose modules are compiled: the first of its runs is not counted.

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

RUNS = 3
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
    process = _start(command)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{command} failed")
    files = [out] if out.is_file() else sorted(out.glob("*.parquet"))
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, sum(f.stat().st_size for f in files))


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def run_case(name: str, rollouts: int, calls: int, folder: Path) -> None:
    """Generate, measure all, print."""
    dump = folder / "dump.jsonl"
    write_conversations(dump, rollouts, calls)
    size = dump.stat().st_size
    commands = {
        "floor": [sys.executable, "-m", "tests.benchmarks.floor", str(dump), str(folder / "floor.parquet")],
        "1 worker": _convert(dump, folder / "one", 1),
        "2 workers": _convert(dump, folder / "two", 2),
    }
    for command in commands.values():
        measure(command, Path(command[-1]))
    best = {
        label: min((measure(command, Path(command[-1])) for _ in range(RUNS)), key=lambda found: found.wall)
        for label, command in commands.items()
    }
    print(f"\n{name} calls, {size / 1e6:.0f} MB")
    print(f"{'':>10} {'MB/s':>7} {'calls/s':>8} {'CPU s':>6} {'peak MB':>8} {'dump/stored':>12} {'x floor':>8}")
    for label, found in best.items():
        print(
            f"{label:>10} {size / 1e6 / found.wall:7.0f} {rollouts * calls / found.wall:8.0f} {found.cpu:6.1f}"
            f" {found.peak_mb:8.0f} {size / found.stored:12.1f} {best['floor'].wall / found.wall:8.2f}"
        )
    one = best["1 worker"].wall
    at_once = min(_at_once([_convert(dump, folder / side, 1) for side in ("left", "right")]) for _ in range(RUNS))
    print(f"2 workers: {one / best['2 workers'].wall:.2f} times one; two conversions at once: {2 * one / at_once:.2f}")
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def _convert(dump: Path, out: Path, workers: int) -> list[str]:
    command = [sys.executable, "-m", "art_otel", "convert", str(dump), "--workers", str(workers)]
    return [*command, "--out", str(out)]


def _at_once(commands: list[list[str]]) -> float:
    """How long these take beside each other, which share nothing but the machine: no two workers can be faster."""
    begin = time.perf_counter()
    processes = [_start(command) for command in commands]
    if {process.wait() for process in processes} != {0}:
        raise SystemExit(f"{commands} failed")
    return time.perf_counter() - begin


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
