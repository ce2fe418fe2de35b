"""The receiver under load: spans and bytes taken a second, its CPU and memory, and how soon a trainer has a rollout.

    uv run python -m tests.benchmarks.receiver [CASE…] [--seconds 10] [--rate 10000]

16 clients keep a connection each, in processes of their own, and send bodies built before. A row is one run: what was
acknowledged a second of wall time, CPU seconds of the server with its builder (user and system) until it had looked at
all of it, for 10,000 spans and 100 MB, and its memory at the end and at its peak. The machine's cores are shared with
the clients, so CPU seconds say more than wall time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.batches import peer_python
from tests.benchmarks.receiver_bodies import generation_of

CLIENTS = 16
PROCESSES = 2
BATCH = 512
_TICKS = os.sysconf("SC_CLK_TCK")


class Case(NamedTuple):
    """`periods` rollouts of `spans` spans follow each other in each of `slots` slots a client."""

    slots: int
    spans: int
    calls: int
    prompt: int
    periods: int
    rate: float | None = None
    trainer: bool = False
    is_open: bool = False
    batch: int = BATCH


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_of(pid: int, kind: str) -> float:
    """MB of a process: `VmRSS` now or `VmHWM` at its peak."""
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{kind}:")[2].split()[0]) / 1024


class Server:
    """`art-otel serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "art_otel", "serve", "--listen", "127.0.0.1:0", "--no-grpc", "--grace", "1h"]
        self._process = subprocess.Popen([*command, "--dir", str(folder)], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().split()[-1]

    def cpu(self) -> float:
        """CPU seconds so far, of its builder too."""
        return sum(map(cpu_of, self._pids()))

    def memory(self, kind: str) -> float:
        """As `memory_of`, with its builder."""
        return sum(memory_of(pid, kind) for pid in self._pids())

    def _pids(self) -> list[int]:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        return [self._process.pid, *(int(pid) for thread in threads for pid in thread.read_text().split())]

    def metric(self, name: str) -> int:
        """A number of `/metrics`."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1])

    def wait_until_finished(self, rollouts: int) -> None:
        """Until it has looked at all that it wrote, and so many rollouts have ended."""
        while self.metric("art_otel_lag_bytes") or self.metric("art_otel_finished_rollouts_total") < rollouts:
            time.sleep(0.05)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        if self._process.wait():
            raise SystemExit("the server failed")


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def python(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process of this benchmark, and wait until it is ready."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def start_clients(url: str, case: Case, *more: object) -> list[subprocess.Popen[str]]:
    """The processes with the clients, ready to send."""
    each = CLIENTS // PROCESSES
    options = [*more]
    for name in ("slots", "spans", "calls", "prompt", "periods", "batch"):
        options += [f"--{name}", getattr(case, name)]
    options += [] if case.rate is None else ["--rate", case.rate / CLIENTS]
    options += ["--open"] if case.is_open else []
    first = range(0, CLIENTS, each)
    return [python("receiver_client", url, "--first", number, "--clients", each, *options) for number in first]


def finish(processes: list[subprocess.Popen[str]]) -> list[Any]:
    """Let them go, and read what they print."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [json.loads(process.communicate()[0]) for process in processes]


def run(name: str, case: Case) -> None:
    """Run a case and print its row."""
    with serving() as server:
        clients = start_clients(f"{server.url}/v1/traces", case)
        trainer = python("receiver_trainer", server.url) if case.trainer else None
        before, empty = server.cpu(), server.memory("VmRSS")
        sent = finish(clients)
        taken = server.cpu() - before
        server.wait_until_finished(sum(len(one["sent"]) for one in sent))
        used = server.cpu() - before
        got = finish([trainer])[0] if trainer is not None else []
        all_used = server.cpu() - before
        wall = max(one["end"] for one in sent) - min(one["begin"] for one in sent)
        totals = {key: sum(one[key] for one in sent) for key in ("spans", "bytes", "requests", "refused", "cpu")}
        spans, size = totals["spans"], totals["bytes"] / 1e6
        print(
            f"{name:>12}: {spans:,} spans, {size:,.0f} MB in {wall:.1f} s: {spans / wall:,.0f} spans/s,"
            f" {size / wall:.1f} MB/s; CPU s: server {taken:.1f} until taken, {used:.1f} until all had ended,"
            f" {all_used:.1f} at the end, clients {totals['cpu']:.1f};"
            f" {used / spans * 1e4:.3f} CPU s/10,000 spans, {used / size * 100:.2f}/100 MB;"
            f" refused {totals['refused']}, slowest answer {max(one['slowest'] for one in sent) * 1e3:.0f} ms"
        )
        print(
            f"{'':>12}  memory {empty:.0f} MB empty, {server.memory('VmRSS'):.0f} now,"
            f" {server.memory('VmHWM'):.0f} peak; open {server.metric('art_otel_open_rollouts'):,}, finished"
            f" {server.metric('art_otel_finished_rollouts_total'):,}"
        )
        if case.trainer:
            print_latency({key: at for one in sent for key, at in one["sent"]}, got, case.periods)
            print(f"{'':>12}  clients behind their times at most {max(one['behind'] for one in sent) * 1e3:.0f} ms")


def run_peer(case: Case) -> None:
    """The same spans into the store of Agent Lightning, which keeps them in memory."""
    server = subprocess.Popen(
        [str(peer_python()), str(Path(__file__).with_name("peer_agentlightning_store.py")), str(case.slots)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    listening = json.loads(next(line for line in server.stdout if line.startswith("{")))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
        json.dump(listening["ids"], ids)
        ids.flush()
        clients = start_clients(listening["url"], case, "--peer", ids.name)
        before = cpu_of(server.pid)
        sent = finish(clients)
    used, spans = cpu_of(server.pid) - before, sum(one["spans"] for one in sent)
    wall = max(one["end"] for one in sent) - min(one["begin"] for one in sent)
    print(
        f"{'peer':>12}: Agent Lightning's store: {spans:,} spans in {wall:.1f} s: {spans / wall:,.0f} spans/s;"
        f" {used / spans * 1e4:.3f} CPU s/10,000 spans, {memory_of(server.pid, 'VmHWM'):.0f} MB peak"
    )
    server.communicate("\n")


def print_latency(sent: dict[str, float], got: list[tuple[str, float, int]], last: int) -> None:
    """From the sending of a rollout's end to the trainer's hands.

    Of generations up to `last`: when the clients begin no more, each body has twice as many ends.
    """
    took = sorted(at - sent[rollout] for rollout, at, _ in got if generation_of(rollout) <= last)
    incomplete = sum(bool(reasons) for _, _, reasons in got)
    assert len(got) == len(sent) == len({rollout for rollout, _, _ in got}), (len(got), len(sent))
    at = {part: took[int(len(took) * part)] * 1e3 for part in (0.5, 0.9, 0.99)}
    print(
        f"{'':>12}  {len(took):,} rollouts, {incomplete} incomplete, to the trainer's hands: p50 {at[0.5]:.0f} ms,"
        f" p90 {at[0.9]:.0f} ms, p99 {at[0.99]:.0f} ms, slowest {took[-1] * 1e3:.0f} ms"
    )


def cases(seconds: float, rate: float) -> dict[str, Case]:
    """All cases, each for about so long."""
    small = max(1, int(seconds * 20_000 / (CLIENTS * 62 * 50)))
    half = max(1, int(seconds * rate / (CLIENTS * 62 * 50)))
    prompts = max(1, int(seconds * 60e6 / (CLIENTS * 62 * 8 * 20_000)))
    return {
        "small spans": Case(slots=62, spans=50, calls=5, prompt=200, periods=small),
        "prompts": Case(slots=62, spans=9, calls=8, prompt=20_000, periods=prompts, batch=64),
        "latency": Case(slots=62, spans=50, calls=5, prompt=200, periods=half, rate=rate, trainer=True),
        "open": Case(slots=625, spans=20, calls=5, prompt=200, periods=0, is_open=True),
        "finished": Case(slots=62, spans=50, calls=5, prompt=200, periods=1_000_000 // (CLIENTS * 62 * 50)),
    }


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="which (default: all)")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=10_000, help="spans a second for latency")
    given = parser.parse_args()
    for name, case in cases(given.seconds, given.rate).items():
        if not given.cases or name in given.cases:
            run(name, case)
    if not given.cases or "peer" in given.cases:
        run_peer(cases(1, given.rate)["small spans"])


if __name__ == "__main__":
    main()
