"""Streams as people write them: sync and async, two choices, one left early, one that breaks, one cancelled.

Prints one JSON line: the text of each stream as it was received.
"""

import asyncio
import contextlib
import json

from openai import APIError, AsyncOpenAI, OpenAI

MODEL = "Qwen/Qwen3-8B"


def ask(text: str) -> dict:
    """The arguments of a request."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True}


def whole(client: OpenAI) -> list[str]:
    """Two choices, read to the end."""
    said = ["", ""]
    for chunk in client.chat.completions.create(**ask("Count the boats"), n=2):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    return said


def left_early(client: OpenAI) -> str:
    """The first words only."""
    said = ""
    with client.chat.completions.create(**ask("Count the clouds #words=40")) as stream:
        for chunk in stream:
            said += chunk.choices[0].delta.content or ""
            if len(said) > 20:
                break
    return said


def broken(client: OpenAI) -> str:
    """The server goes away after four chunks."""
    said = ""
    with contextlib.suppress(APIError):
        for chunk in client.chat.completions.create(**ask("Count the stars #break=4")):
            said += chunk.choices[0].delta.content or ""
    return said


def helped(client: OpenAI) -> str | None:
    """The client's own stream helper."""
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "Count the waves"}]
    ) as stream:
        for _event in stream:
            pass
        return stream.get_final_completion().choices[0].message.content


async def interleaved(client: AsyncOpenAI) -> list[str]:
    """Three streams whose chunks arrive in turn."""

    async def one(number: int) -> str:
        said = ""
        stream = await client.chat.completions.create(**ask(f"Count to {number} #pace=0.002"))
        async for chunk in stream:
            said += chunk.choices[0].delta.content or ""
        return said

    return await asyncio.gather(*(one(number) for number in (10, 20, 30)))


async def cancelled(client: AsyncOpenAI) -> str:
    """Nobody waits for the end."""
    said = ""

    async def read() -> None:
        nonlocal said
        async for chunk in await client.chat.completions.create(**ask("Count slowly #words=60 #pace=0.02")):
            said += chunk.choices[0].delta.content or ""

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(read(), 0.3)
    return said


async def in_tasks() -> dict:
    """Those that need a loop."""
    async with AsyncOpenAI() as client:
        return {"interleaved": await interleaved(client), "cancelled": await cancelled(client)}


def main() -> None:
    """All of them, one after another."""
    with OpenAI() as client:
        said = {
            "whole": whole(client),
            "left_early": left_early(client),
            "broken": broken(client),
            "helped": helped(client),
        }
    print(json.dumps(said | asyncio.run(in_tasks())))


if __name__ == "__main__":
    main()
