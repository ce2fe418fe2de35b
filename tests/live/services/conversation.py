"""What each service does with a request or a task: a conversation of two calls."""

from collections.abc import AsyncIterator, Iterator

from openai import AsyncOpenAI, OpenAI

import art_otel

FAILING = "fails"
"""A question whose answer is never whole."""


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
    """The same while somebody reads it, and how it ended as the reward."""
    client, messages = OpenAI(), _messages(question)
    first = client.chat.completions.create(model="m", messages=messages)
    yield first.id
    second = client.chat.completions.create(model="m", messages=[*messages, *_next(first)])
    yield f" {second.id}"
    art_otel.reward(0.5)
    if question == FAILING:
        raise RuntimeError("in the middle of an answer")


async def converse_in_parts_async(question: str) -> AsyncIterator[str]:
    """The same with the asynchronous client."""
    client, messages = AsyncOpenAI(), _messages(question)
    first = await client.chat.completions.create(model="m", messages=messages)
    yield first.id
    second = await client.chat.completions.create(model="m", messages=[*messages, *_next(first)])
    yield f" {second.id}"
    art_otel.reward(0.5)
    if question == FAILING:
        raise RuntimeError("in the middle of an answer")


async def converse_async(question: str) -> str:
    """The same with the asynchronous client."""
    client, messages = AsyncOpenAI(), _messages(question)
    first = await client.chat.completions.create(model="m", messages=messages)
    second = await client.chat.completions.create(model="m", messages=[*messages, *_next(first)])
    return f"{first.id} {second.id}"
