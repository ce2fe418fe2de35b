"""Rollouts that go well, fail, are cancelled and time out, gathered; their live trajectories are written to a file.

`python fates.py live.parquet`. Prints one JSON line: the status of each by name.
"""

import asyncio
import contextlib
import json
import sys

from openai import AsyncOpenAI

import art_otel


async def ask(client: AsyncOpenAI, text: str) -> str | None:
    """One call."""
    reply = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return reply.choices[0].message.content


@art_otel.rollout
async def well(client: AsyncOpenAI) -> str | None:
    """Two calls and a reward."""
    await ask(client, "One")
    said = await ask(client, "Two")
    art_otel.reward(0.5)
    return said


@art_otel.rollout
async def refused(client: AsyncOpenAI) -> None:
    """The server refuses the second call."""
    await ask(client, "One")
    await ask(client, "Two #fail=400")


@art_otel.rollout
async def raised(client: AsyncOpenAI) -> None:
    """The app's own mistake after a call."""
    await ask(client, "One")
    raise ValueError("the app's own mistake")


@art_otel.rollout
async def slow(client: AsyncOpenAI) -> None:
    """A call that takes longer than anybody waits."""
    await ask(client, "One")
    await ask(client, "Two #delay=20")


async def timed_out(client: AsyncOpenAI) -> None:
    """The rollout is given up from outside."""
    async with asyncio.timeout(1):
        await slow(client)


async def main() -> None:
    """Gathered where they end by themselves, else cancelled from outside."""
    async with AsyncOpenAI() as client:
        found = [await art_otel.gather_trajectory(fate(client)) for fate in (well, refused, raised)]
        with contextlib.suppress(TimeoutError):
            await timed_out(client)
        task = asyncio.create_task(slow(client))
        await asyncio.sleep(0.5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    art_otel.write_trajectories(found, sys.argv[1])
    print(json.dumps({trajectory.name: trajectory.status for trajectory in found}))


if __name__ == "__main__":
    asyncio.run(main())
