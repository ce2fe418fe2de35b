"""Sampled answers: a framework may show an answer otherwise than it was sampled.

Invariant: an answer without its leading `<think>` block, or a tool call as JSON text (structured output), is still the
same answer; two answers with different thinking are not. A call keeps the answer as the client recorded it.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, ToolCall

_THINKING: Final = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)


def without_thinking(text: str) -> str:
    """The text without a `<think>` block at its start."""
    thinking = _THINKING.match(text)
    return text if thinking is None else text[thinking.end() :]


def is_same_but_for_thinking(text: str, other: str) -> bool:
    """Whether the texts are equal, or one is the other without the thinking."""
    return text == other or without_thinking(text) == other or text == without_thinking(other)


def is_structured_output(message: Message, other: Message) -> bool:
    """Whether one has as JSON text what the other has as the arguments of its one tool call."""
    return _is_json_of(message.content, other.tool_calls) or _is_json_of(other.content, message.tool_calls)


def with_sampled(call: InferenceCall, sampled: Mapping[int, Choice]) -> InferenceCall:
    """Put the sampled answers, by their index, where the call has another form of them."""
    choices = tuple(_as_sampled(choice, sampled.get(choice.index, choice)) for choice in call.choices or ())
    return msgspec.structs.replace(call, choices=choices) if choices != (call.choices or ()) else call


def _as_sampled(choice: Choice, sampled: Choice) -> Choice:
    message = choice.message
    if message == sampled.message or not _is_another_form(message, sampled.message):
        return choice
    finish_reason = sampled.finish_reason or choice.finish_reason
    return msgspec.structs.replace(choice, message=sampled.message, finish_reason=finish_reason)


def _is_another_form(message: Message, sampled: Message) -> bool:
    text, sampled_text = (message.content or "").strip(), (sampled.content or "").strip()
    if text and sampled_text and text != sampled_text:
        return is_same_but_for_thinking(text, sampled_text)
    return is_structured_output(message, sampled)


def _is_json_of(text: str | None, tool_calls: tuple[ToolCall, ...]) -> bool:
    if not text or len(tool_calls) != 1:
        return False
    try:
        return bool(json.loads(text) == json.loads(tool_calls[0].arguments))
    except (ValueError, RecursionError):
        return False
