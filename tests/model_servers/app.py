"""README's app: `python -m tests.model_servers.app URL FOLDER` runs each ask in a rollout, without a gateway."""

import asyncio
import sys
from collections.abc import Callable

import openai

import art_otel
from tests.model_servers.asks import openai_asks


async def main(url: str, folder: str) -> None:
    """Run the asks of OpenAI's client."""
    art_otel.configure(dir=folder, request_tokens=True)
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300) as client:
        for name, ask in openai_asks().items():
            await asyncio.to_thread(_in_rollout, name, ask, client)


def _in_rollout(name: str, ask: Callable[[openai.OpenAI], object], client: openai.OpenAI) -> None:
    with art_otel.rollout(name=name):
        ask(client)
        art_otel.reward(1.0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
