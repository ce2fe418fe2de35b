"""What live tracing adds to an LLM call, and to the start of a program while disabled.

Calls of a raw client, of one with an instrumentor, and of both with art-otel are made in turn in one process, so that
what is compared was measured under the same load. What a call costs is the mean of the fastest fifth: the client's own
work varies by more than what we add. CPU time of the app's process only; the server is another process.

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
    "the instrumentor, spooled": ("alone", "spooled"),
    "the instrumentor, captured and spooled": ("alone", "captured"),
    "the instrumentor, ids captured and spooled": ("alone, ids", "captured, ids"),
    "the raw client, captured and spooled": ("raw", "ours"),
    "the raw client, ids captured and spooled": ("raw, ids", "ours, ids"),
}
"""What we add to, by the cases of `live_calls`."""
FASTEST = 5
"""One of so many calls is the fastest fifth."""
STARTS = 40


def run_calls(python: Path, rounds: int, messages: int, size: int, stream: bool) -> dict[str, list[float]]:
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
    print(f"\n{name}: CPU of a call in µs, mean of the fastest fifth")
    print(f"{'':>46} {'without':>8} {'added':>7} {'times':>6}")
    for size, (messages, length) in SIZES.items():
        for stream in (False, True):
            found = {case: fast(times) for case, times in run_calls(python, rounds, messages, length, stream).items()}
            instrumentor = found["alone"] - found["raw"]
            print(f"  {size}{', streamed' if stream else ''} (the instrumentor itself adds {instrumentor:.0f})")
            for label, (before, after) in PAIRS.items():
                added, times = found[after] - found[before], found[after] / found[before]
                print(f"{'to ' + label:>46} {found[before]:8.0f} {added:7.0f} {times:6.2f}")


def fast(times: list[float]) -> float:
    """What a call costs in µs where nothing comes between."""
    return statistics.fmean(sorted(times)[: max(1, len(times) // FASTEST)]) * 1e6


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
