"""`python -m tests.fuzz --minutes 60 [--seed N] [--target NAME] [--findings FOLDER]`: run cases until the time is over.

Exit 1 when something was found. Each finding is a folder below `--findings` with its smallest input and its traceback;
two cases are one finding when the same exception comes from the same place of ours, or when they break one law. A case
that hangs ends the run with a traceback, and as one that kills the process it is the one that was printed last.
`--case N` with `--target` runs one case and shows it.
"""

import argparse
import faulthandler
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from itertools import count
from pathlib import Path

from tests.fuzz.cases import make_case, reordered
from tests.fuzz.corpus import TARGETS
from tests.fuzz.laws import check

MAX_CPU_SECONDS = 10
MAX_WALL_SECONDS = 60
MAX_MEMORY = 1 << 30
ADDRESS_SPACE = 6 << 30
TURNS = 2
"""How often each target has its turn in the whole time."""


def main() -> int:
    """Fuzz."""
    options = _options()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if options.case is not None:
        print(*(problem_of(options.target, options.case) or ["no finding"]), sep="\n")
        return 0
    folder = options.findings or Path(tempfile.mkdtemp(prefix="art-otel-fuzz-findings-"))
    targets = [options.target] if options.target else list(TARGETS)
    numbers = {target: count(options.seed * 1_000_000) for target in targets}
    found, smallest = Counter[str](), dict[str, int]()
    ends = time.monotonic() + 60 * options.minutes
    while time.monotonic() < ends:
        for target in targets:
            stop = min(ends, time.monotonic() + 60 * options.minutes / len(targets) / TURNS)
            while time.monotonic() < stop:
                number = next(numbers[target])
                print(f"\r--target {target!r} --case {number} ", end="", file=sys.stderr, flush=True)
                if (problem := problem_of(target, number)) is None:
                    continue
                signature, story = problem
                found[signature] += 1
                data = make_case(target, number)
                if len(data) < smallest.get(signature, len(data) + 1):
                    smallest[signature] = len(data)
                    place = folder / re.sub(r"[^\w.]+", "-", signature)[:100]
                    place.mkdir(parents=True, exist_ok=True)
                    (place / "input.dump").write_bytes(data)
                    (place / "story.txt").write_text(f"--target {target!r} --case {number}\n{signature}\n{story}\n")
                    print(f"{signature}: --target {target!r} --case {number} ({len(data)} bytes)", flush=True)
    print(f"findings in {folder}", *found.most_common() or ["none"], sep="\n")
    return 1 if found else 0


def problem_of(target: str, number: int) -> tuple[str, str] | None:
    """What is wrong with a case: what it is known by, and how it came about."""
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is counted anew
    started = _cpu_seconds()
    faulthandler.dump_traceback_later(MAX_WALL_SECONDS, exit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            data = make_case(target, number)
            check(data, reordered(target, data), alone=number % 10 == 0)
    except Exception as error:  # noqa: BLE001 # whatever it is, it is the finding
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "/art_otel/" in frame.filename]
        if isinstance(error, AssertionError) and not ours:
            signature = f"law: {str(error).splitlines()[0] if str(error) else frames[-1].line}"
        else:
            place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else frames[-1].name
            signature = f"{type(error).__name__} in {place}"
        return signature, traceback.format_exc()[-6_000:]
    finally:
        faulthandler.cancel_dump_traceback_later()
    if (seconds := _cpu_seconds() - started) > MAX_CPU_SECONDS:
        return "slow", f"{seconds:.1f} s of CPU"
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory = int(status.partition("VmHWM:")[2].split()[0]) << 10
    return ("memory", f"{memory >> 20} MiB") if memory > MAX_MEMORY else None


def _cpu_seconds() -> float:
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=list(TARGETS))
    parser.add_argument("--case", type=int)
    parser.add_argument("--findings", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
