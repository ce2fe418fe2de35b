"""What each service does with a request or a task: a conversation of two calls."""

from collections.abc import Iterator

from openai import AsyncOpenAI, OpenAI

import art_otel


def _messages(question: str) -> list:
    return [{"role": "user", "content": question}]


def _next(reply) -> list:
    answer = reply.choices[0].message
    return [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "Are you sure?"}]


def converse(question: str) -> str:
    """The ids of both answers."""
    client, messages = OpenAI(), _messages(question)
    first = client.chat.completions.create(model="m", messages=messages)
    second = client.chat.completions.create(model="m", messages=[*messages, *_next(first)])
    return f"{first.id} {second.id}"


def converse_in_parts(question: str) -> Iterator[str]:
    """The same, while somebody reads it."""
    yield from converse(question)
    art_otel.reward(0.5)


@art_otel.rollout(group_id=lambda question: question)
def streamed(question: str) -> Iterator[str]:
    """The same as a rollout, as docs/how-to/web-servers.md has it."""
    yield from converse_in_parts(question)


async def converse_async(question: str) -> str:
    """The same with the asynchronous client."""
    client, messages = AsyncOpenAI(), _messages(question)
    first = await client.chat.completions.create(model="m", messages=messages)
    second = await client.chat.completions.create(model="m", messages=[*messages, *_next(first)])
    return f"{first.id} {second.id}"
