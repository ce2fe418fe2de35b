"""What the clients of OpenAI and Anthropic give of a server: `python clients.py URL`, a line of JSON for each case."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
import openai

URL = sys.argv[1]
FAILURES = (400, 401, 404, 409, 422, 429, 500, 529)
OPENAI = {"base_url": f"{URL}/v1", "api_key": "sk-x", "max_retries": 0}
ANTHROPIC = {"base_url": URL, "api_key": "sk-y", "max_retries": 0}


def user(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def say(name: str, *found: object) -> None:
    shown = [one.model_dump(mode="json") if hasattr(one, "model_dump") else one for one in found]
    print(json.dumps([name, *shown], default=str), flush=True)


def parsed(line: str) -> object:
    """What a line says, as the gateway takes what it asked for out of JSON, and spaces with it."""
    data = line.removeprefix("data: ")
    return json.loads(data) if data.startswith("{") else line


def error_of(name: str, ask: Callable[[], object]) -> None:
    try:
        ask()
    except (openai.APIError, anthropic.APIError) as error:
        retry = error.response.headers.get("retry-after-ms") if hasattr(error, "response") else None
        say(
            name,
            type(error).__name__,
            str(error),
            getattr(error, "status_code", None),
            getattr(error, "body", None),
            retry,
        )
    else:
        say(name, "no error")


def by_openai() -> None:
    client = openai.OpenAI(**OPENAI)
    chat = client.chat.completions
    say("chat", chat.create(**user("Hi")))
    say("chat n", chat.create(**user("Hi"), n=2, logprobs=True))
    say("stream", *chat.create(**user("Hi"), stream=True))
    say("stream usage", *chat.create(**user("Hi"), stream=True, stream_options={"include_usage": True}))
    say("completions", client.completions.create(model="m", prompt="Once"))
    say("completions stream", *client.completions.create(model="m", prompt="Once", stream=True))
    say("responses", client.responses.create(model="m", input="Hi"))
    say("responses stream", *client.responses.create(model="m", input="Hi", stream=True))
    with chat.stream(**user("Hi")) as stream:
        say("helper", [event.type for event in stream], stream.get_final_completion())
    with client.responses.stream(model="m", input="Hi") as stream:
        say("responses helper", [event.type for event in stream], stream.get_final_response())
    raw = chat.with_raw_response.create(**user("Hi"))
    say("raw", raw.status_code, raw.http_response.json(), raw.parse())
    with chat.with_streaming_response.create(**user("Hi")) as streaming:
        say("streaming response", streaming.status_code, *map(parsed, streaming.iter_lines()))
    with chat.with_streaming_response.create(**user("Hi"), stream=True) as streaming:
        say("streaming lines", *map(parsed, streaming.iter_lines()))
    say("models", *client.models.list())
    for status in FAILURES:
        error_of(f"chat {status}", lambda status=status: chat.create(**user(f"Hi #fail={status}")))
        error_of(
            f"responses {status}", lambda status=status: client.responses.create(model="m", input=f"Hi #fail={status}")
        )
        error_of(f"stream {status}", lambda status=status: chat.create(**user(f"Hi #fail={status}"), stream=True))
    error_of("files", client.files.list)
    error_of("embeddings", lambda: client.embeddings.create(model="m", input="Hi"))
    error_of("slow", lambda: chat.create(**user("Hi #delay=3"), timeout=0.5))
    say("retried", client.with_options(max_retries=2).chat.completions.create(**user("Hi #fail=429x1")))
    with chat.create(**user("Hi #pace=0.05"), stream=True) as stream:
        say("left", next(stream))


def by_anthropic() -> None:
    client = anthropic.Anthropic(**ANTHROPIC)
    asks = {**user("Hi #think=1"), "max_tokens": 99}
    say("messages", client.messages.create(**asks))
    say("messages stream", *client.messages.create(**asks, stream=True))
    with client.messages.stream(**asks) as stream:
        say("messages helper", [event.type for event in stream], stream.get_final_message())
    say("messages raw", client.messages.with_raw_response.create(**asks).http_response.json())
    for status in FAILURES:
        error_of(
            f"messages {status}",
            lambda status=status: client.messages.create(**user(f"Hi #fail={status}"), max_tokens=9),
        )
    error_of("count", lambda: client.messages.count_tokens(**user("Hi")))


async def by_async_clients() -> None:
    async with openai.AsyncOpenAI(**OPENAI) as client:
        many = await asyncio.gather(*(client.chat.completions.create(**user(f"Hi {number}")) for number in range(8)))
        say("async", *(one.choices[0].model_dump() for one in many))
        say("async stream", *[one async for one in await client.chat.completions.create(**user("Hi"), stream=True)])
        try:
            await asyncio.wait_for(client.chat.completions.create(**user("Hi #delay=3")), 0.5)
        except TimeoutError:
            say("cancelled", client.is_closed())
    async with anthropic.AsyncAnthropic(**ANTHROPIC) as client:
        say(
            "async messages",
            *[one async for one in await client.messages.create(**user("Hi"), max_tokens=9, stream=True)],
        )


by_openai()
by_anthropic()
asyncio.run(by_async_clients())
