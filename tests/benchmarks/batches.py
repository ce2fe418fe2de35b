"""Batches beside Agent Lightning 0.3.0, in CPU seconds; every run in a process of its own.

Reading Parquet: tokens a second, and peak memory for N and 4 N rollouts. Then spans in memory, and OTLP bytes by way of
them, to batches (ours) and to triplets (Agent Lightning's `TracerTraceToTriplet`, in an environment of its own); last
OTLP bytes through Parquet to batches, which only we do.

uv run python -m tests.benchmarks.batches [--scale 1.0] [--folder DIR] [--alone]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.peer_dump import Kind, write_peer_dump
from tests.trainers.environment import trainer_python

CASES = {"1000 x 8": (1000, 8), "60 x 64": (60, 64)}
ROOT = Path(__file__).parents[2]
PEER = "agentlightning==0.3.0"


def peer_python() -> Path:
    """The Python that has Agent Lightning."""
    return trainer_python("agentlightning-whole", PEER)


def run_ours(what: str, source: Path) -> dict:
    """One run of `tests.benchmarks.batches_runs`."""
    return _run(sys.executable, "-m", "tests.benchmarks.batches_runs", what, str(source))


def run_peer(dump: Path) -> dict:
    """One run of Agent Lightning."""
    return _run(str(peer_python()), str(ROOT / "tests/benchmarks/peer_agentlightning.py"), str(dump))


def _run(*command: str) -> dict:
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_reading(name: str, rollouts: int, calls: int, folder: Path) -> None:
    """Parquet to batches, for N and 4 N rollouts."""
    print(f"\n{name} calls: Parquet to batches")
    print(f"{'rollouts':>10} {'tokens/s':>12} {'trained tokens/s':>17} {'calls/s':>9} {'peak MB':>8}")
    for count in (rollouts, 4 * rollouts):
        dump, out = folder / "read.bin", folder / f"read-{count}"
        write_peer_dump(dump, count, calls, "ours")
        subprocess.run(
            [sys.executable, "-m", "art_otel", "convert", str(dump), "--out", str(out)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        found = min((run_ours("parquet", out) for _ in range(2)), key=lambda run: run["batching"])
        speeds = [found[counted] / found["batching"] for counted in ("tokens", "trained_tokens", "completions")]
        print(f"{count:>10} {speeds[0]:12,.0f} {speeds[1]:17,.0f} {speeds[2]:9,.0f} {found['peak_mb']:8.0f}")
        dump.unlink()


def print_beside(name: str, dumps: dict[Kind, Path], ours: Kind, theirs: Kind, *, alone: bool) -> None:
    """Spans a CPU second of both, the best of two runs each."""
    found: dict[str, list[float]] = {}
    spans = [run_ours("spans", dumps[ours]) for _ in range(2)]
    found["spans in memory"] = [max(_speeds(run, "assembling", "batching") for run in spans)]
    found["OTLP bytes"] = [max(_speeds(run, "reading", "assembling", "batching") for run in spans)]
    whole = max(_speeds(run_ours("through-parquet", dumps[ours]), "converting", "batching") for _ in range(2))
    if not alone:
        peer = [run_peer(dumps[theirs]) for _ in range(2)]
        found["spans in memory"].append(max(_speeds(run, "adapting") for run in peer))
        found["OTLP bytes"].append(max(_speeds(run, "reading", "adapting") for run in peer))
    print(f"\n{name} calls, {'the same spans' if ours == theirs else 'each as it records them'}: spans a CPU second")
    print(f"{'':>16} {'art-otel':>9}" + ("" if alone else f" {'Agent Lightning':>16} {'ratio':>6}"))
    for label, (own, *other) in found.items():
        print(f"{label:>16} {own:9,.0f}" + "".join(f" {speed:16,.0f} {own / speed:6.1f}" for speed in other))
    print(f"{'through Parquet':>16} {whole:9,.0f}")


def _speeds(run: dict, *parts: str) -> float:
    return run["spans"] / sum(run[part] for part in parts)


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of rollouts")
    parser.add_argument("--folder", type=Path, help="where dumps and datasets are written (default: temporary)")
    parser.add_argument("--alone", action="store_true", help="without Agent Lightning")
    given = parser.parse_args()
    for name, (rollouts, calls) in CASES.items():
        with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
            folder, count = Path(temporary), max(1, int(rollouts * given.scale))
            print_reading(name, count, calls, folder)
            dumps: dict[Kind, Path] = {kind: folder / f"{kind}.bin" for kind in ("ours", "theirs", "both")}
            for kind, dump in dumps.items():
                write_peer_dump(dump, count, calls, kind)
            print_beside(name, dumps, "both", "both", alone=given.alone)
            print_beside(name, dumps, "ours", "theirs", alone=given.alone)


if __name__ == "__main__":
    main()
