"""README's app: `python -m tests.model_servers.app URL FOLDER [NAME…]` runs these asks, or all, each in a rollout."""

import asyncio
import sys
from collections.abc import Callable

import openai

import art_otel
from tests.model_servers.asks import openai_asks


async def main(url: str, folder: str, *chosen: str) -> None:
    """Run the asks of OpenAI's client, without a gateway."""
    art_otel.configure(dir=folder, request_tokens=True)
    failed: list[str] = []
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300) as client:
        for name, ask in openai_asks().items():
            if not chosen or name in chosen:
                try:
                    await asyncio.to_thread(_in_rollout, name, ask, client)
                except openai.OpenAIError as error:
                    failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        sys.exit("\n".join(failed))


def _in_rollout(name: str, ask: Callable[[openai.OpenAI], object], client: openai.OpenAI) -> None:
    with art_otel.rollout(name=name):
        ask(client)
        art_otel.reward(1.0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
