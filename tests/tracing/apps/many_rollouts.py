"""Many rollouts at once in one process, their streams interleaved; some have sub-agents, some work in threads.

`python many_rollouts.py 200`. Prints one JSON line: the response ids of each rollout by its name, as the app saw them.
"""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import AsyncOpenAI, OpenAI

import art_otel


class Told(dict):
    """Response ids by rollout."""

    def add(self, name: str, response_id: str) -> None:
        """One more."""
        self.setdefault(name, []).append(response_id)


async def stream(client: AsyncOpenAI, told: Told, name: str, text: str) -> None:
    """One streamed call."""
    messages = [{"role": "user", "content": f"{name}: {text} #pace=0.001"}]
    response_id = ""
    async for chunk in await client.chat.completions.create(model="m", messages=messages, stream=True):
        response_id = chunk.id
    told.add(name, response_id)


async def run_one(client: AsyncOpenAI, blocking: OpenAI, pool: ThreadPoolExecutor, told: Told, number: int) -> None:
    """One rollout: a call, then either a sub-agent, two calls at once, or a call in a pool's thread; then another."""
    name = f"rollout-{number}"
    with art_otel.rollout(name=name, group_id=f"group-{number % 10}"):
        await stream(client, told, name, "first")
        if number % 3 == 0:
            with art_otel.rollout(name=f"sub-{number}"):
                await stream(client, told, f"sub-{number}", "inner")
        elif number % 3 == 1:
            await asyncio.gather(stream(client, told, name, "left"), stream(client, told, name, "right"))
        else:

            def ask() -> str:
                messages = [{"role": "user", "content": f"{name} in a thread"}]
                return blocking.chat.completions.create(model="m", messages=messages).id

            told.add(name, await asyncio.get_running_loop().run_in_executor(pool, art_otel.in_context(ask)))
        await stream(client, told, name, "last")


async def main() -> None:
    """All at once."""
    told = Told()
    async with AsyncOpenAI() as client:
        with OpenAI() as blocking, ThreadPoolExecutor(8) as pool:
            await asyncio.gather(*(run_one(client, blocking, pool, told, number) for number in range(int(sys.argv[1]))))
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main())
