"""What live tracing adds to an LLM call, over the instrumentor alone, and to the start of a program while disabled.

Every case runs in turn in one process, so that what is compared was measured under the same load. CPU time of the app's
process only; the server is another process.

    uv run python -m tests.benchmarks.live [--rounds 60] [--instrumentor openllmetry]
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.live.environments import NAMES, ROOT, live_python
from tests.tracing.server import ModelServer

SIZES = {"4 messages": (4, 1_200), "60 messages, 20 KB": (60, 20_000)}
PAIRS = {
    "traced, no spool": ("alone", "traced"),
    "traced and spooled": ("alone", "spooled"),
    "answer captured and spooled": ("alone", "spooled, captured"),
    "ids captured and spooled": ("alone, with ids", "spooled, ids captured"),
}
STARTS = 40


def run_calls(python: Path, rounds: int, messages: int, size: int, *, stream: bool) -> dict[str, list[float]]:
    """One process of calls."""
    options = [
        "--rounds",
        str(rounds),
        "--messages",
        str(messages),
        "--size",
        str(size),
        *(["--stream"] if stream else []),
    ]
    with tempfile.TemporaryDirectory() as folder, ModelServer(Path(folder)) as server:
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
            "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        }
        command = [str(python), "-m", "tests.benchmarks.live_calls", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_calls(name: str, rounds: int) -> None:
    """A table of one instrumentor."""
    python = live_python(name)
    print(f"\n{name}: CPU of a call in µs, medians")
    print(f"{'':>32} {'alone':>8} {'added':>7} {'middle half of pairs':>22}")
    for size, (messages, length) in SIZES.items():
        for stream in (False, True):
            found = run_calls(python, rounds, messages, length, stream=stream)
            print(f"  {size}{', streamed' if stream else ''}")
            for label, (before, after) in PAIRS.items():
                added = [(b - a) * 1e6 for a, b in zip(found[before], found[after], strict=True)]
                low, middle, high = statistics.quantiles(added, n=4)
                alone = statistics.median(found[before]) * 1e6
                print(f"{label:>32} {alone:8.0f} {middle:7.0f} {low:11.0f} … {high:8.0f}")


def start_cost(python: Path, code: str) -> float:
    """CPU seconds of a program."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ART_OTEL")}
    process = subprocess.Popen([str(python), "-c", code], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def print_start() -> None:
    """Programs with and without autoload, the variable not set, in turn."""
    python = live_python("openllmetry")
    program = str(python.parent / "art-otel")
    found: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(STARTS):
        for label, verb in (("without", "remove"), ("with", "install")):
            subprocess.run([program, "autoload", verb], check=True, capture_output=True)
            found[label].append(start_cost(python, "pass"))
    subprocess.run([program, "autoload", "remove"], check=True, capture_output=True)
    print("\nstart of a program, the variable not set: CPU in ms")
    for label, times in found.items():
        low, middle, high = (1e3 * value for value in statistics.quantiles(times, n=4))
        print(f"{label + ' autoload':>20} {middle:7.2f}  ({low:.2f} … {high:.2f})")


def main() -> None:
    """Calls under each instrumentor, then starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--instrumentor", choices=NAMES, action="append")
    given = parser.parse_args()
    for name in given.instrumentor or NAMES:
        print_calls(name, given.rounds)
    print_start()


if __name__ == "__main__":
    main()
