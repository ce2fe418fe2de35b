"""How fast `art-otel view` answers about many trajectories: `uv run python -m tests.benchmarks.viewer [N] [FOLDER]`.

Prints seconds to ready, of each answer (the best of three), and the server's memory. The dataset stays in FOLDER, and
is taken from there where it is one.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np

from art_otel.calls import Logprobs, Message, TokenIds
from art_otel.store import FileLimits, write_trajectories
from art_otel.trajectories import Reward, Trajectory, Turn
from tests.data.token_rollouts import talk
from tests.trajectories.calls import with_sampled
from tests.viewer.served import answer

GROUP = 8
TEMPLATES = 64
TOKENS = (800, 500, 300)
"""Sampled in each call of a rollout; a prompt repeats what was before."""
WORDS = [f"{stem}{ending}" for stem in ("cal", "per", "sum", "tra", "vel", "mon") for ending in ("a", "ing", "ed", "o")]


def rollouts(count: int) -> Iterator[Trajectory]:
    """Conversations of some shapes, with texts, tokens, logprobs, ids, rewards and groups of their own."""
    generator, numbers = random.Random(0), np.random.default_rng(0)
    templates = [talk("r", *(size + generator.randrange(50) for size in TOKENS)) for _ in range(TEMPLATES)]
    for number in range(count):
        reward = generator.choice((0.0, 0.25, 0.5, 1.0, None))
        rewards = () if reward is None else (Reward(name="reward", value=reward, source="attribute", time_ns=1),)
        group, started = number // GROUP, 1_795_000_000_000_000_000 + number * 1_000_000
        one = with_sampled(templates[number % TEMPLATES], lambda turn: own_turn(turn, generator, numbers))
        yield replace(
            one,
            rollout_id=f"{number:032x}",
            trace_id=f"{number * 7919:032x}",
            name=f"task-{group % 97}",
            group_id=f"group-{group}",
            training_step=group // 64,
            split="train",
            reward=reward,
            rewards=rewards,
            started_at=started,
            ended_at=started + 2_000_000_000,
        )


def own_turn(turn: Turn, generator: random.Random, numbers: np.random.Generator) -> dict[str, object]:
    """The turn with another text and other tokens, as many as before."""
    size = len(turn.token_ids or ())
    words = " ".join(generator.choices(WORDS, k=size // 2))
    return {
        "message": Message(role="assistant", content=words),
        "token_ids": TokenIds(numbers.integers(0, 150_000, size, np.int32).tobytes()),
        "logprobs": Logprobs((-numbers.exponential(0.5, size)).astype("<f4").tobytes()),
    }


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def timed(name: str, client: httpx.Client, path: str, **query: object) -> None:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        answer(client, path, **query)
        seconds.append(time.perf_counter() - began)
    print(f"{name:28} first {seconds[0]:7.3f} s   best {min(seconds):7.3f} s")


def main(count: int, kept: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(kept or folder) / "dataset"
        if not data.exists():
            write_trajectories(rollouts(count), data, limits=FileLimits(part_rows=16_384))
        size = sum(file.stat().st_size for file in data.iterdir())
        print(f"{count:,} trajectories, {size / 1e6:,.0f} MB")
        began = time.perf_counter()
        command = [sys.executable, "-m", "art_otel", "view", str(data), "--no-open", "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        with httpx.Client(base_url=url.partition("/?")[0], timeout=600, follow_redirects=True) as client:
            client.get(url)
            page = answer(client, "trajectories", offset=count * 9 // 10, limit=100)
            print(f"ready after {time.perf_counter() - began:.2f} s, {memory_mb(process.pid):.0f} MB")
            for sort in ("reward", "task", "started", "turns"):
                timed(f"sort by {sort}", client, "trajectories", sort=sort, order="desc")
            timed("filter by step", client, "trajectories", step=3)
            timed("filter by group", client, "trajectories", group=page["rows"][0]["groupKey"])
            timed("jump to row", client, "trajectories", offset=count * 8 // 10)
            timed("run", client, "run")
            timed("read first", client, "run/read")
            timed("open a rollout", client, f"rollouts/{page['rows'][0]['key']}")
            timed("open its tokens", client, f"rollouts/{page['rows'][1]['key']}/tokens")
            print(f"served with {memory_mb(process.pid):.0f} MB")
            timed("search all texts", client, "trajectories", q="nobody says this")
            timed("plan", client, "plan")
            print(f"at the end {memory_mb(process.pid):.0f} MB")
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2] if len(sys.argv) > 2 else None)
