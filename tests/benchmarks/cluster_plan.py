"""The plan of a conversion that no machine here can run: its tasks, and the memory of who plans.

The real plan runs, with its real shuffle catalogs, links and placement, on summaries that are made up, and the largest
route task on records that are made up; each in a process of its own, whose memory is measured.

uv run python -m tests.benchmarks.cluster_plan [--rollouts 1e8] [--linked 0.1] [--folder DIR]
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from art_otel.engines import Conversion, Sizes
from art_otel.engines.assemble import AssembledPart, AssembleTask
from art_otel.engines.convert import convert
from art_otel.engines.read import ReadSummary, ReadTask
from art_otel.engines.route import RerouteTask, Routed, RouteTask, route
from art_otel.engines.run import Job
from art_otel.engines.shuffle import (
    NOTHING,
    ROLLOUT_REGIONS,
    Membership,
    Shuffle,
    Shuffled,
    ShuffleFile,
    ShuffleWriter,
    SlotSize,
    region_of,
)
from art_otel.sources import FileStats
from art_otel.store import Part
from art_otel.trajectories import AssemblyStats

ROLLOUT_BYTES = 100_000
RECORDS = 0.8
"""Bytes of records for a byte of input."""

TRACES = 8
"""Of a rollout that has several."""


class Simulated:
    """An engine that runs nothing: it makes up the summaries of the tasks that `convert` plans."""

    def __init__(self, rollouts: int, linked: float, folder: Path, sizes: Sizes) -> None:
        self._rollouts = rollouts
        self._linked = linked
        self._folder = folder
        self._sizes = sizes

    def run(self, function: Callable, tasks: Sequence) -> Iterator[bytes]:
        """The summaries as workers would send them."""
        make: Callable[[Sequence], Iterator] = getattr(self, function.__name__)
        report(f"{function.__name__}: {len(tasks):,} tasks")
        yield from map(msgspec.msgpack.encode, make(tasks))

    def read_split(self, tasks: Sequence[ReadTask]) -> Iterator[ReadSummary]:
        """Every file has something in every slot."""
        count, slots = len(tasks), self._sizes.slots
        spans, size = self._rollouts * (TRACES + 1), self._rollouts * ROLLOUT_BYTES * RECORDS
        each = SlotSize(max(1, spans // count // slots), int(size / count / slots))
        named = self._rollouts // count // len(ROLLOUT_REGIONS) + 1
        names = SlotSize(named, 130 * named)
        regions = dict.fromkeys(ROLLOUT_REGIONS, names) | dict.fromkeys(range(slots), each)
        for number, task in enumerate(tasks):
            files = [FileStats(path=source.name, spans=spans // count) for source in task.inputs]
            yield ReadSummary(files=files, shuffled=_shuffled(number, regions))

    def route(self, tasks: Sequence[RouteTask]) -> Iterator[Routed]:
        """Edges, and no rewards."""
        chance = Random(0)
        for _ in tasks:
            edges: list[bytes] = []
            for _ in range(int(self._rollouts * self._linked / len(tasks))):
                first, *others = (chance.randbytes(16) for _ in range(TRACES))
                edges += [first + other for other in others]
            yield Routed(edges=b"".join(edges), shuffled=NOTHING, again=NOTHING, touched=())

    def reroute(self, tasks: Sequence[RerouteTask]) -> Iterator[Shuffled]:
        """Records go to every slot."""
        regions = dict.fromkeys(range(self._sizes.slots), SlotSize(100, 100_000))
        return (_shuffled(number, regions) for number, _ in enumerate(tasks))

    def assemble(self, tasks: Sequence[AssembleTask]) -> Iterator[AssembledPart]:
        """Parts without rows, of which the first is committed."""
        for task in tasks:
            location = self._folder / "part"
            location.touch()
            part = Part(
                name=f"part-{task.number:05d}-00000000.parquet",
                rows=0,
                bytes=0,
                sha256="0" * 64,
                started_at=None,
                training_step=None,
                splits=(),
                group_rows=(),
            )
            yield AssembledPart(part=part, location=str(location), stats=AssemblyStats())


def _shuffled(number: int, regions: dict[int, SlotSize]) -> Shuffled:
    location = f"s3://bucket/out/.art-otel-scratch-{0:032x}/shuffle-{number:032x}"
    return Shuffled(file=ShuffleFile(location=location, size=1, index_start=0), regions=regions)


def driver(rollouts: int, linked: float, folder: Path) -> None:
    """`convert` itself, on files that are as long as the dumps and have nothing in them."""
    sizes = Sizes()
    (folder / "in").mkdir()
    split = sizes.split_bytes(rollouts * ROLLOUT_BYTES)
    for number in range(rollouts * ROLLOUT_BYTES // split):
        with (folder / "in" / f"{number:06d}.jsonl").open("wb") as file:
            file.truncate(split)
    report("begin")
    convert(
        Conversion(sources=[str(folder / "in")], out=folder / "out", sizes=sizes),
        Simulated(rollouts, linked, folder, sizes),
    )
    report("committed")


def reducer(rollouts: int, linked: float, folder: Path) -> None:
    """The largest link task: one region of all rollout ids."""
    region = region_of("r0", ROLLOUT_REGIONS)
    report("begin")
    writer = ShuffleWriter(str(folder), 4096)
    chance = Random(0)
    count = 0
    for number in range(int(rollouts * (1 + linked * (TRACES - 1)) / len(ROLLOUT_REGIONS))):
        several = chance.random() < linked * TRACES / (1 + linked * (TRACES - 1))
        rollout_id = f"rollout-{number // TRACES if several else number:09d}-{several}"
        writer.put(region, Membership(rollout_id, chance.randbytes(16).hex()))
        count += 1
    catalog, nothing = (Shuffle.of(one).write_catalog(str(folder)) for one in ([writer.finish()], ()))
    report(f"{count:,} memberships written")
    job = Job(scratch=str(folder), sizes=Sizes())
    summary = route(RouteTask(regions=(region,), files=catalog, kept=nothing, job=job))
    report(f"route: {len(summary.edges) // 32:,} edges")


def report(what: str) -> None:
    """Memory at most so far, as the system counts it, and CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{used.ru_maxrss / 1024:8.0f} MB {used.ru_utime + used.ru_stime:8.1f} s  {what}", flush=True)


PARTS: dict[str, Callable[[int, float, Path], None]] = {"driver": driver, "reducer": reducer}


def main() -> None:
    """Run each part in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=float, default=1e8)
    parser.add_argument("--linked", type=float, default=0.1, help="the share of rollouts over several traces")
    parser.add_argument("--folder", type=Path, help="where files are written (default: temporary)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            PARTS[arguments.part](int(arguments.rollouts), arguments.linked, Path(folder))
        return
    for part in PARTS:
        print(part, flush=True)
        command = [sys.executable, "-m", "tests.benchmarks.cluster_plan", *sys.argv[1:], "--part", part]
        subprocess.run(command, check=True, env=os.environ)


if __name__ == "__main__":
    main()
