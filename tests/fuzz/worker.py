"""Worker: the process that runs cases. It may crash, hang or be killed; the watcher starts the next one.

Invariant: a line of JSON on standard output before each case (`{"case": n}`) and one after it (`{"done": n, …}`).
"""

import faulthandler
import json
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path

from tests.fuzz.cases import make_case, reordered
from tests.fuzz.laws import check

MAX_CPU_SECONDS = 10
MAX_WALL_SECONDS = 60
MAX_MEMORY = 1 << 30
ADDRESS_SPACE = 6 << 30
PACKAGE = "art_otel"


def _peak_memory() -> int:
    """The most bytes that this process had; `ru_maxrss` would begin with those of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main() -> None:
    """Run the cases `target first end`."""
    target, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    warnings.simplefilter("error")
    for number in range(first, end):
        _tell(case=number)
        faulthandler.dump_traceback_later(MAX_WALL_SECONDS, exit=True)
        started = _cpu_seconds()
        problem = problem_of(target, number)
        seconds = _cpu_seconds() - started
        faulthandler.cancel_dump_traceback_later()
        memory = _peak_memory()
        if problem is None and seconds > MAX_CPU_SECONDS:
            problem = ("slow", f"{seconds:.1f} s of CPU")
        if problem is None and memory > MAX_MEMORY:
            problem = ("memory", f"{memory >> 20} MiB")
        _tell(done=number, seconds=round(seconds, 3), memory=memory >> 20, problem=problem)
        if memory > MAX_MEMORY:
            return  # the next process begins with little memory again


def problem_of(target: str, number: int) -> tuple[str, str] | None:
    """What is wrong with a case: what it is known by, and how it came about."""
    unraisable: list[tuple[str, str]] = []
    sys.unraisablehook = lambda found: unraisable.append(
        (f"unraisable {found.exc_type.__name__}", str(found.exc_value))
    )
    try:
        data = make_case(target, number)
        check(data, reordered(target, data), alone=number % 10 == 0)
    except Exception as error:  # noqa: BLE001 # whatever it is, it is the finding
        return signature_of(error), traceback.format_exc()[-6_000:]
    return unraisable[0] if unraisable else None


def signature_of(error: BaseException) -> str:
    """The exception and the deepest place of our own in it, or the law."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"/{PACKAGE}/" in frame.filename]
    if isinstance(error, AssertionError) and not own:
        frame = frames[-1]
        return f"law: {str(error).splitlines()[0] if str(error) else frame.line}"
    place = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else frames[-1].name
    return f"{type(error).__name__} in {place}"


def _cpu_seconds() -> float:
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
