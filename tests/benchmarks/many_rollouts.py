"""Many rollouts at once in one process, each asking once a second: what tracing adds in CPU, and how long it blocks.

Each case is a process of its own against the same server, in turn. CPU is that of the app's process, in cores.

    uv run python -m tests.benchmarks.many_rollouts [--rollouts 1000] [--seconds 20] [--runs 3]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import art_otel
from tests.soak.__main__ import LoopClock
from tests.tracing.server import ModelServer

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CASES = ("untraced", "traced", "traced, with ids")


async def _converse(client: "AsyncOpenAI", number: int, rollouts: int, until: float) -> None:
    await asyncio.sleep(number / rollouts)
    messages = [{"role": "user", "content": f"question {number}"}]
    with art_otel.rollout(name="x"):
        while time.monotonic() < until:
            began = time.monotonic()
            answer = await client.chat.completions.create(model="m", messages=messages[-8:])
            messages += [
                {"role": "assistant", "content": answer.choices[0].message.content},
                {"role": "user", "content": "go on"},
            ]
            await asyncio.sleep(max(0.0, 1 - (time.monotonic() - began)))
        art_otel.reward(1.0)


async def _run(rollouts: int, seconds: float) -> dict[str, float]:
    from openai import AsyncOpenAI  # noqa: PLC0415 # after tracing began, as an app does

    client = AsyncOpenAI(max_retries=0, timeout=60)
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "warm up"}])
    clock = LoopClock()
    until = time.monotonic() + seconds
    tasks = [asyncio.create_task(_converse(client, number, rollouts, until)) for number in range(rollouts)]
    await asyncio.sleep(2)  # connections are made
    ticking = asyncio.create_task(clock.run())
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.sleep(max(1.0, seconds - 4))
    cores = (time.process_time() - cpu) / (time.monotonic() - began)
    ticking.cancel()
    await asyncio.gather(*tasks)
    return {"cores": cores, "blocked_ms": clock.longest * 1e3}


def _one(case: str, rollouts: int, seconds: float) -> None:
    if case == "untraced":
        art_otel.configure(enabled=False)
    else:
        art_otel.configure(request_tokens=case.endswith("ids"))
    print(json.dumps(asyncio.run(_run(rollouts, seconds))))


def main() -> None:
    """Run each case in turn and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--case", choices=CASES)
    given = parser.parse_args()
    if given.case is not None:
        _one(given.case, given.rollouts, given.seconds)
        return
    measured: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    options = ["--rollouts", str(given.rollouts), "--seconds", str(given.seconds)]
    for _ in range(given.runs):
        for case in CASES:
            with tempfile.TemporaryDirectory() as folder, ModelServer(Path(folder)) as server:
                environment = {
                    **os.environ,
                    "OPENAI_BASE_URL": server.url,
                    "OPENAI_API_KEY": "none",
                    "ART_OTEL_DIR": folder,
                }
                command = [sys.executable, "-m", "tests.benchmarks.many_rollouts", "--case", case, *options]
                ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                measured[case].append(json.loads(ran.stdout.splitlines()[-1]))
    for case, runs in measured.items():
        cores = statistics.median(run["cores"] for run in runs)
        blocked = statistics.median(run["blocked_ms"] for run in runs)
        print(f"{case:>20}   {cores:5.2f} cores   longest block {blocked:6.1f} ms")


if __name__ == "__main__":
    main()
