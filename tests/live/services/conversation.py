"""What each service does with a request or a task: a conversation of two calls."""

from openai import AsyncOpenAI, OpenAI


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


async def converse_async(question: str) -> str:
    """The same with the asynchronous client."""
    client, messages = AsyncOpenAI(), _messages(question)
    first = await client.chat.completions.create(model="m", messages=messages)
    second = await client.chat.completions.create(model="m", messages=[*messages, *_next(first)])
    return f"{first.id} {second.id}"
