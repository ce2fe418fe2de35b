"""One process of the gathering benchmark: rollouts that run at once and ask a real server, gathered and checked.

Prints a JSON line: what came back whole, and megabytes of memory: at the start, at its peak, and what the results hold.
`--untraced` runs the same app without art-otel, which says what the app itself takes.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import resource
import sys
from contextlib import suppress
from pathlib import Path

from openai import AsyncOpenAI

import art_otel

WORDS = "and the sea is far but it is not all of it so we ask on "


def text_of(size: int, number: int) -> str:
    """So many bytes, about a token every four, of which no two numbers have the same."""
    return (f"n{number} " + WORDS * (size // len(WORDS) + 1))[:size]


class Agent:
    """Asks about one long text, again and again; the conversation grows."""

    def __init__(self, client: AsyncOpenAI, calls: int, prompt_bytes: int) -> None:
        self._client = client
        self._calls = calls
        self._prompt_bytes = prompt_bytes

    async def run(self, number: int) -> int:
        """The number of the rollout."""
        messages: list = [{"role": "user", "content": text_of(self._prompt_bytes, number)}]
        for call in range(self._calls):
            reply = await self._client.chat.completions.create(model="m", messages=messages, logprobs=True)
            messages += [
                {"role": "assistant", "content": reply.choices[0].message.content},
                {"role": "user", "content": f"Go on, {call}. #words=20"},
            ]
        return number


async def gather(agent: Agent, rollouts: int) -> list:
    """The trajectories, or without tracing what the rollouts returned."""

    @art_otel.rollout(name="agent")
    async def rollout(number: int) -> int:
        done = await agent.run(number)
        art_otel.reward(number / rollouts)
        return done

    return await art_otel.gather_trajectories((rollout(number) for number in range(rollouts)), progress=False)


def is_whole(trajectory: art_otel.Trajectory, number: int, rollouts: int, calls: int, prompt_bytes: int) -> bool:
    """Whether everything is there."""
    asked = text_of(prompt_bytes, number)
    return (
        trajectory.complete
        and trajectory.reward == number / rollouts
        and len(trajectory.calls) == len(trajectory.turns) == calls
        and all(call.input_messages[0].content == asked for call in trajectory.calls)
        and all(len(call.prompt_token_ids) >= prompt_bytes // 5 for call in trajectory.calls)
        and all(call.choices[0].token_ids and call.choices[0].logprobs for call in trajectory.calls)
    )


def memory() -> int:
    """Bytes that the process has in memory, after what is free was given back."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most bytes that this program had in memory; getrusage counts what started it too."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


async def measure(given: argparse.Namespace) -> dict:
    """Run, check, weigh."""
    async with AsyncOpenAI(timeout=600, max_retries=5) as client:
        agent = Agent(client, given.calls, given.prompt_bytes)
        warm = Agent(client, 2, 100)
        if given.untraced:
            await warm.run(0)
            start = memory()
            await asyncio.gather(*(agent.run(number) for number in range(given.rollouts)))
            return {"start": start, "peak": peak(), "held": 0, "whole": 0}
        await gather(warm, 2)
        start = memory()
        found = await gather(agent, given.rollouts)
        whole = sum(
            is_whole(one, number, given.rollouts, given.calls, given.prompt_bytes) for number, one in enumerate(found)
        )
        await asyncio.sleep(0)  # the loop holds the results until its next turn
        most, with_results = peak(), memory()
        found.clear()
        return {"start": start, "peak": most, "held": with_results - memory(), "whole": whole}


def main() -> None:
    """As the docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--prompt-bytes", type=int, default=100_000)
    parser.add_argument("--spool", type=Path, help="a folder; without it nothing is kept on disk")
    parser.add_argument("--untraced", action="store_true")
    given = parser.parse_args()
    if not given.untraced:
        art_otel.configure(spool=given.spool or False, request_tokens=True, exporters=())
    json.dump(asyncio.run(measure(given)), sys.stdout)


if __name__ == "__main__":
    main()
