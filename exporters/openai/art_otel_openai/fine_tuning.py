"""FineTuning: conversations and pairs as lines of OpenAI's fine-tuning files.

Invariant: a line is what OpenAI's schema takes, with only the fields and parts of content that it has for each role. If
there is no such line, the reason is counted. The last message of a line of `sft` is the assistant's, and so are the
first messages of both outputs of `preference`.

Source: `FineTuneChatRequestInput` and `FineTunePreferenceRequestInput` of OpenAI's API description, and its guides to
supervised fine-tuning and direct preference optimization.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

from art_otel.exporting import (
    NO_ASSISTANT,
    NO_PROMPT,
    SAME,
    ExportStats,
    FormatError,
    JsonObject,
    LaterMessages,
    MessageExample,
    PreferencePair,
    Value,
    answers,
    encode_each,
    is_function,
)

NO_REASONING: Final = "reasoning left out of messages"
NO_NAME: Final = "name left out of tool messages"
EMPTY: Final = "messages without content, which got an empty text"

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "system": ("name",),
    "developer": ("name",),
    "user": ("name",),
    "assistant": ("name", "refusal", "tool_calls"),
    "tool": ("tool_call_id",),
}
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
}

ParallelToolCalls: TypeAlias = Annotated[
    bool | None, Meta(description="if given, it is written beside the tools: may the model call several at once")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenAISftConfig:
    """Options of `sft`."""

    parallel_tool_calls: ParallelToolCalls = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferenceConfig:
    """Options of `preference`."""

    parallel_tool_calls: ParallelToolCalls = None
    later_messages: LaterMessages = "truncate"  # Azure takes all, OpenAI one message a side


def encode_sft(items: Iterator[MessageExample], config: OpenAISftConfig, stats: ExportStats) -> Iterator[JsonObject]:
    """Give a line for each example: `messages`, with `weight` on those of the assistant, and `tools`."""
    return encode_each(items, lambda example: _sft(example, config, stats), stats)


def encode_preferences(
    items: Iterator[PreferencePair], config: PreferenceConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """Give a line for each pair: `input`, `preferred_output` and `non_preferred_output`."""
    return encode_each(items, lambda pair: _preference(pair, config, stats), stats)


def _sft(example: MessageExample, config: OpenAISftConfig, stats: ExportStats) -> JsonObject:
    messages = [_message(message, stats) for message in example.messages]
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
    prompt = [_message(message, stats) for message in pair.prompt]
    preferred, non_preferred = (
        [_message(message, stats) for message in answers(side, config.later_messages, stats)]
        for side in (pair.chosen, pair.rejected)
    )
    if preferred == non_preferred:
        raise FormatError(SAME)
    return {
        "input": {"messages": prompt, **_tools(pair.tools, parallel=config.parallel_tool_calls)},
        "preferred_output": preferred,
        "non_preferred_output": non_preferred,
    }


def _message(message: Mapping[str, Any], stats: ExportStats) -> JsonObject:
    """Give a message in the fields that OpenAI takes. Raises FormatError if it does not fit."""
    role, content = message["role"], message["content"]
    if role not in _FIELDS:
        raise FormatError(f"a message with a role that OpenAI does not have: {role!r:.40}")
    parts: Sequence[JsonObject] = () if isinstance(content, str | None) else content
    for part in parts:
        if part.get("type") not in _PARTS.get(role, ("text",)):
            raise FormatError(f"content that OpenAI does not take in {role} messages: {part.get('type')!r:.40}")
    fields: JsonObject = {"role": role, "content": content}
    fields |= {name: message[name] for name in _FIELDS[role] if name in message}
    if role == "tool" and "tool_call_id" not in fields:
        raise FormatError("a tool message without a tool_call_id")
    if any("id" not in call for call in fields.get("tool_calls", ())):
        raise FormatError("a tool call without an id")
    if "reasoning_content" in message:
        stats.changed[NO_REASONING] += 1
    if role == "tool" and "name" in message:
        stats.changed[NO_NAME] += 1
    if content is None and not ("tool_calls" in fields or "refusal" in fields):
        stats.changed[EMPTY] += 1
        fields["content"] = ""
    return fields


def _tools(tools: Sequence[Value] | None, *, parallel: bool | None) -> JsonObject:
    """Give what a line says about tools, nothing if there are none. Raises FormatError for other than functions."""
    if not tools:
        return {}
    functions = [tool for tool in tools if is_function(tool)]
    if len(functions) < len(tools):
        raise FormatError("a tool that is not a function")
    return {"tools": functions, **({} if parallel is None else {"parallel_tool_calls": parallel})}
