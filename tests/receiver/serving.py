"""`art-otel serve` as a child process, and what it hands to a trainer."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import art_otel
from art_otel.trajectories import Trajectory


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a `serve` that keeps what it receives below the folder."""
    command = [sys.executable, "-m", "art_otel", "serve", "--http", "127.0.0.1:0", "--no-grpc", "--dir", str(folder)]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = re.search(r"http://\S+", process.stderr.readline())
            assert url is not None, process.stderr.read()
            yield url.group()
        finally:
            process.terminate()


def next_rollouts(url: str, count: int) -> list[Trajectory]:
    """The next rollouts that end at a receiver."""

    async def receive() -> list[Trajectory]:
        async with asyncio.timeout(60), art_otel.connect(url) as rollouts:
            return [await anext(rollouts) for _ in range(count)]

    return asyncio.run(receive())
