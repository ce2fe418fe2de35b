"""Do one thing that an app does, many times in this process, and say what is left over of it.

    uv run python -m tests.soak ENTRY [--times 300] [--seconds S]

Prints one JSON line: how often it was done, what the process held after the first tenth and at the end (see `Held`),
which of our objects became more, and the longest time in milliseconds that the event loop did nothing else.
"""

import argparse
import asyncio
import gc
import json
import os
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.soak.entries import ENTRIES, Once

TICK = 0.001
"""Seconds between two looks at the clock on the event loop."""
POOL = 4
GRACE = 2.5
"""Seconds after which a rollout that has ended is let go, by the next one that ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What a process holds: `files` are temporary ones, `mb` is its resident memory."""

    descriptors: int
    threads: int
    processes: int
    files: int
    mb: float

    @classmethod
    def now(cls, process: int | None) -> "Held":
        """Count what this process holds, or what another one does."""
        of = Path("/proc", "self" if process is None else str(process))
        tasks = list((of / "task").iterdir())
        return cls(
            descriptors=sum(1 for _ in (of / "fd").iterdir()),
            threads=len(tasks),
            processes=sum(len((task / "children").read_text().split()) for task in tasks),
            files=sum(1 for _ in Path(tempfile.gettempdir()).rglob("*")),
            mb=int((of / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        )


async def our_objects() -> Counter[str]:
    """How many there are of each of our types, once all garbage is gone.

    An async generator that is garbage, as one of a client whose stream was left, is closed by the event loop.
    """
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(TICK)
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return Counter({kind: count for kind, count in kinds.items() if kind.startswith("art_otel.")})


class LoopClock:
    """Looks at the clock again and again on the event loop, and knows the longest time between two looks."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(TICK)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - TICK)
            last = now


async def _start_pool() -> None:
    """Start all threads of the event loop's pool, which otherwise come one by one, when none is free."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(POOL))
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.1) for _ in range(POOL)))


async def repeat(once: Once, times: int, seconds: float) -> dict:
    """Do it, and count before and after; the first tenth fills what is filled once."""
    done, held, objects = 0, [], []
    await _start_pool()
    clock = LoopClock()
    for share in (times // 10, times):
        until = time.monotonic() + (seconds / 10 if share < times else seconds)
        ticking = asyncio.create_task(clock.run()) if once.is_async else None
        clock.longest = 0.0
        while done < share - 1 or time.monotonic() < until:
            await once.do(done)
            done += 1
        await asyncio.sleep(GRACE)
        await once.do(done)
        done += 1
        if ticking is not None:
            ticking.cancel()
        objects.append(await our_objects())
        held.append(asdict(Held.now(once.process)))
    longest = round(clock.longest * 1e3, 1) if once.is_async else None
    more = objects[1] - objects[0]
    return {"times": done, "begin": held[0], "end": held[1], "more_objects": more, "loop_blocked_ms": longest}


def main() -> None:
    """Do it and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("entry", choices=sorted(ENTRIES))
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=0.0, help="at least so long")
    given = parser.parse_args()
    # What the app's own work needs stands beside the temporary folder whose files are counted.
    with tempfile.TemporaryDirectory() as folder:
        work, temporary = Path(folder, "work"), Path(folder, "temporary")
        work.mkdir()
        temporary.mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
        with ENTRIES[given.entry](work) as once:
            print(json.dumps(asyncio.run(repeat(once, given.times, given.seconds))))


if __name__ == "__main__":
    main()
