"""Encode: conversations and pairs as lines of OpenAI's fine-tuning files.

Invariant: a line is what OpenAI's schema takes, or there is none and the reason is noted. The last message of a line of
`sft` is the assistant's, and so are the first messages of both outputs of `preference`.

Source: `FineTuneChatRequestInput` and `FineTunePreferenceRequestInput` of OpenAI's API description, and its guides to
supervised fine-tuning and direct preference optimization.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from art_otel.exporting import (
    NO_ASSISTANT,
    NO_PROMPT,
    SAME,
    ExportStats,
    FormatError,
    MessageExample,
    PreferencePair,
    Value,
    answers,
    encode_each,
)
from art_otel_openai.config import PreferenceConfig, SftConfig
from art_otel_openai.messages import openai_message, openai_tools

JsonObject: TypeAlias = dict[str, Any]


def encode_sft(items: Iterator[MessageExample], config: SftConfig, stats: ExportStats) -> Iterator[JsonObject]:
    """A line an example: `messages`, with `weight` on those of the assistant, and `tools`."""
    return encode_each(items, lambda example: _sft(example, config, stats), stats)


def encode_preferences(
    items: Iterator[PreferencePair], config: PreferenceConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """A line a pair: `input`, `preferred_output` and `non_preferred_output`."""
    return encode_each(items, lambda pair: _preference(pair, config, stats), stats)


def _sft(example: MessageExample, config: SftConfig, stats: ExportStats) -> JsonObject:
    messages = _messages(example.messages, stats)
    if messages[-1]["role"] != "assistant":
        raise FormatError("the last message is not the assistant's")
    for message, train in zip(messages, example.train, strict=True):
        if message["role"] == "assistant":
            message["weight"] = int(train)
        elif train:
            raise FormatError(NO_ASSISTANT)
    return {"messages": messages, **_tools(example.tools, parallel=config.parallel_tool_calls)}


def _preference(pair: PreferencePair, config: PreferenceConfig, stats: ExportStats) -> JsonObject:
    if not pair.prompt:
        raise FormatError(NO_PROMPT)
    prompt = _messages(pair.prompt, stats)
    preferred, non_preferred = (
        _messages(answers(side, config.later_messages, stats), stats) for side in (pair.chosen, pair.rejected)
    )
    if preferred == non_preferred:
        raise FormatError(SAME)
    return {
        "input": {"messages": prompt, **_tools(pair.tools, parallel=config.parallel_tool_calls)},
        "preferred_output": preferred,
        "non_preferred_output": non_preferred,
    }


def _messages(messages: Sequence[JsonObject], stats: ExportStats) -> list[JsonObject]:
    return [openai_message(message, stats) for message in messages]


def _tools(tools: Sequence[Value] | None, *, parallel: bool | None) -> JsonObject:
    if not tools:
        return {}
    fields: JsonObject = {"tools": openai_tools(tools)}
    return fields if parallel is None else fields | {"parallel_tool_calls": parallel}
