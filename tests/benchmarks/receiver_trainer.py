"""A trainer for the receiver's benchmark: takes what ends, and prints when it had each rollout, as JSON.

It ends when a line comes and nothing more did for two seconds.
"""

import asyncio
import json
import sys
import threading
import time

import art_otel

_QUIET = 2.0


async def take(url: str, told_to_end: threading.Event) -> list[tuple[str, float, int]]:
    """The id of each rollout, when it was there, and how many spans are missing of it."""
    got: list[tuple[str, float, int]] = []
    async with art_otel.connect(url) as rollouts:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        coming = asyncio.ensure_future(anext(rollouts))
        while True:
            done, _ = await asyncio.wait([coming], timeout=_QUIET)
            if done:
                trajectory = coming.result()
                got.append((trajectory.rollout_id, time.monotonic(), len(trajectory.incomplete_reasons)))
                coming = asyncio.ensure_future(anext(rollouts))
            elif told_to_end.is_set():
                coming.cancel()
                return got


def main() -> None:
    """Take, print."""
    told_to_end = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        told_to_end.set()

    threading.Thread(target=listen, daemon=True).start()
    json.dump(asyncio.run(take(sys.argv[1], told_to_end)), sys.stdout)


if __name__ == "__main__":
    main()
