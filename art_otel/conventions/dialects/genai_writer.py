"""GenAI attributes, written: what an OpenAI-compatible server was asked and answered, as an instrumentor records it.

Invariant: `genai.read` reads back what was asked and answered: texts, reasoning, tool calls with their exact arguments.
"""

import json
from typing import Final, cast

import msgspec

from art_otel.calls import Message, Usage
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies.openai_body import read_request, read_response
from art_otel.conventions.dialects import genai
from art_otel.conventions.facts import NO_FACTS
from art_otel.spans import Value

_PARAMETERS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "n": "choice.count",
}
"""OpenAI's names of numbers that may be asked for, and GenAI's."""

_USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}


def request_attributes(body: dict[str, Value]) -> dict[str, Value]:
    """Write what was asked: the model, numeric parameters and messages. `body` is that of a request."""
    facts = read_request(AttributeReader({}), "", body) or NO_FACTS
    numbers = {_PARAMETERS[name]: value for name, value in facts.parameters.items() if name in _PARAMETERS}
    written: dict[str, Value] = {
        f"gen_ai.request.{name}": value for name, value in numbers.items() if isinstance(value, (int, float))
    }
    if facts.request_model is not None:
        written[genai.REQUEST_MODEL] = facts.request_model
    if facts.input_messages:
        written[genai.INPUT_MESSAGES] = json.dumps([genai_message(message) for message in facts.input_messages])
    return written


def response_attributes(body: dict[str, Value]) -> dict[str, Value]:
    """Write what was answered: the model, messages, finish reasons and usage. `body` is that of a response."""
    facts = read_response(AttributeReader({}), "", body) or NO_FACTS
    choices = facts.choices or ()
    counts = cast(dict[str, int | None], msgspec.structs.asdict(facts.usage or Usage()))
    written: dict[str, Value] = {_USAGE[name]: count for name, count in counts.items() if name in _USAGE and count}
    if facts.response_model is not None:
        written["gen_ai.response.model"] = facts.response_model
    if choices:
        messages = [genai_message(choice.message) | {"finish_reason": choice.finish_reason} for choice in choices]
        written[genai.OUTPUT_MESSAGES] = json.dumps(messages)
        if all(choice.finish_reason for choice in choices):
            written["gen_ai.response.finish_reasons"] = [choice.finish_reason for choice in choices]
    return written


def genai_message(message: Message) -> dict[str, Value]:
    """Write a message with GenAI's parts."""
    parts: list[Value] = []
    if message.reasoning is not None:
        parts.append({"type": "reasoning", "content": message.reasoning})
    content: list[Value] | None = None if message.parts is None else msgspec.json.decode(message.parts)
    if message.tool_call_id is not None:
        result = message.content if content is None else content
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "result": result})
    elif content is not None:
        parts += content
    elif message.content is not None:
        parts.append({"type": "text", "content": message.content})
    if message.refusal is not None:
        parts.append({"type": "refusal", "content": message.refusal})
    parts.extend(
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    )
    named = {} if message.name is None else {"name": message.name}
    return {"role": message.role, "parts": parts, **named}
