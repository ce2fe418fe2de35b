"""An agent as people write them: the `openai` client, tools, several turns, a sub-agent. It knows nothing of tracing.

The guide answers questions about a city. It can look at the thermometer and the clock, and ask the archivist, an agent
that reads the register and the atlas. Which tool helps with which question is for the model to find out.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Final, TypeAlias, cast

from openai import OpenAI
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
)

MODEL: Final = "guide"
MAX_CALLS: Final = 3

Tool: TypeAlias = Callable[[str], str]
"""Gives what is known of a city."""


def guide(client: OpenAI, topic: str, city: str, readings: Mapping[str, Mapping[str, str]], seed: int) -> str:
    """Answer a question. `readings` is what each instrument shows in each city; `seed` makes the answer repeatable."""
    seeds = count(seed)

    def look_at(instrument: str) -> Tool:
        return lambda city: readings[instrument].get(city, "unknown")

    def ask_archivist(city: str) -> str:
        archive = {"register": look_at("register"), "atlas": look_at("atlas")}
        return converse(client, f"{topic} in {city}", archive, seeds)

    tools = {"thermometer": look_at("thermometer"), "clock": look_at("clock"), "archivist": ask_archivist}
    return converse(client, f"{topic} in {city}", tools, seeds)


def converse(client: OpenAI, question: str, tools: Mapping[str, Tool], seeds: Iterator[int]) -> str:
    """Let the model use the tools until it answers; empty if it never does."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    for _ in range(MAX_CALLS):
        reply = client.chat.completions.create(
            model=MODEL, messages=messages, tools=[describe(name) for name in tools], seed=next(seeds)
        )
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(cast(ChatCompletionMessageParam, message.to_dict()))
        messages += [run(call, tools) for call in message.tool_calls if call.type == "function"]
    return ""


def run(call: ChatCompletionMessageFunctionToolCall, tools: Mapping[str, Tool]) -> ChatCompletionMessageParam:
    """What the tool says."""
    city = json.loads(call.function.arguments)["city"]
    return {"role": "tool", "tool_call_id": call.id, "content": tools[call.function.name](city)}


def describe(name: str) -> ChatCompletionFunctionToolParam:
    """Describe the tool to the model, in OpenAI's format."""
    city: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": city}}
