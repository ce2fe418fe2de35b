"""Conversations: histories as rows of `chat`, and pairs of them as rows of `dpo`.

Invariant: a row is what TRL's data utilities call conversational; if there is none, the reason is counted. Content is
text.

Source: the dataset formats of TRL 1.16, and what `SFTTrainer` and `DPOTrainer` do with them.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
import pyarrow as pa
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
    ParquetFile,
    PreferencePair,
    Row,
    Value,
    answers,
    encode_each,
    text_message,
)

END_CUT: Final = "messages behind the last trained one cut"
TRAINED_TOO: Final = "conversations in which TRL trains answers that are not trained here"
BETWEEN: Final = "sides with messages between the answers, which TRL compares too"
NO_OBJECT: Final = "tool call arguments that are no plain JSON object kept as text"

ToolArguments: TypeAlias = Annotated[
    Literal["object", "text"],
    Meta(
        description="tool call arguments as an object, which templates write with tojson, or as the sampled text, which"
        " some templates then encode twice"
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatConfig:
    """Options of `chat`."""

    layout: Annotated[
        Literal["prompt_completion", "messages"],
        Meta(
            description="prompt_completion: what stands before the first trained message is the prompt, so answers that"
            " several histories share are trained once; messages: one list, in which TRL trains every answer"
        ),
    ] = "prompt_completion"
    tool_arguments: ToolArguments = "object"


@dataclass(frozen=True, kw_only=True, slots=True)
class DpoConfig:
    """Options of `dpo`."""

    tool_arguments: ToolArguments = "object"
    later_messages: LaterMessages = "keep"  # TRL compares all that it gets, what tools said too


def encode_chat(items: Iterator[MessageExample], config: ChatConfig, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each example: `messages`, or `prompt` and `completion`; and `tools`."""
    return encode_each(items, lambda example: _chat(example, config, stats), stats)


def encode_dpo(items: Iterator[PreferencePair], config: DpoConfig, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each pair: `prompt`, `chosen`, `rejected` and `tools`."""
    return encode_each(items, lambda pair: _dpo(pair, config, stats), stats)


def _chat(example: MessageExample, config: ChatConfig, stats: ExportStats) -> Row:
    trained_at = [position for position, train in enumerate(example.train) if train]
    start, end = trained_at[0], trained_at[-1] + 1
    if any(example.messages[position]["role"] != "assistant" for position in trained_at):
        raise FormatError(NO_ASSISTANT)
    if start == 0 and config.layout == "prompt_completion":
        raise FormatError(NO_PROMPT)
    messages = _template_messages(example.messages[:end], config, stats)
    trained = range(start, end) if config.layout == "prompt_completion" else range(end)
    if any(messages[position]["role"] == "assistant" and not example.train[position] for position in trained):
        stats.changed[TRAINED_TOO] += 1
    if len(example.messages) > end:
        stats.changed[END_CUT] += 1
    if config.layout == "messages":
        talk = {"messages": _json(messages)}
    else:
        talk = {"prompt": _json(messages[:start]), "completion": _json(messages[start:])}
    origin = {"rollout_id": example.rollout_id, "group_id": example.group_id, "reward": example.reward}
    return {**talk, "tools": _tools(example.tools), **origin}


def _dpo(pair: PreferencePair, config: DpoConfig, stats: ExportStats) -> Row:
    if not pair.prompt:
        raise FormatError(NO_PROMPT)
    prompt = _template_messages(pair.prompt, config, stats)
    chosen, rejected = (_side(side, config, stats) for side in (pair.chosen, pair.rejected))
    if chosen == rejected:
        raise FormatError(SAME)
    return {
        "prompt": _json(prompt),
        "chosen": _json(chosen),
        "rejected": _json(rejected),
        "tools": _tools(pair.tools),
        "group_id": pair.group_id,
        "chosen_rollout_id": pair.chosen_rollout_id,
        "rejected_rollout_id": pair.rejected_rollout_id,
        "chosen_reward": pair.chosen_reward,
        "rejected_reward": pair.rejected_reward,
    }


def _side(side: Sequence[JsonObject], config: DpoConfig, stats: ExportStats) -> list[JsonObject]:
    """One side of a pair. It begins with what the policy sampled."""
    kept = answers(side, config.later_messages, stats)
    if any(message["role"] != "assistant" for message in kept):
        stats.changed[BETWEEN] += 1
    return _template_messages(kept, config, stats)


def _template_messages(
    messages: Sequence[JsonObject], config: ChatConfig | DpoConfig, stats: ExportStats
) -> list[JsonObject]:
    """OpenAI's chat messages as a chat template takes them. Raises FormatError if one is more than text."""
    converted: list[JsonObject] = []
    for message in messages:
        plain = text_message(message, stats)
        if "tool_calls" in plain and config.tool_arguments == "object":
            plain["tool_calls"] = [_with_object(call, stats) for call in plain["tool_calls"]]
        converted.append(plain)
    return converted


def _with_object(call: Mapping[str, Any], stats: ExportStats) -> JsonObject:
    function = call["function"]
    parsed = _object(function["arguments"])
    if parsed is None:
        stats.changed[NO_OBJECT] += 1
        return dict(call)
    return {**call, "function": {**function, "arguments": parsed}}


def _object(arguments: str) -> JsonObject | None:
    """The JSON object in the text. None if it is none, or if the JSON reader of `datasets` would refuse it."""
    if not arguments.strip():
        return {}
    try:
        value: object = msgspec.json.decode(arguments)
        return cast(JsonObject, value) if isinstance(value, dict) and _is_plain(cast(object, value)) else None
    except (msgspec.DecodeError, RecursionError):
        return None


_INT64: Final = range(-(2**63), 2**63)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, cast(dict[str, object], value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[object], value)))
    return not isinstance(value, int) or value in _INT64


def _tools(tools: Sequence[Value] | None) -> str | None:
    return json.dumps(tools, ensure_ascii=False) if tools else None


def _json(messages: Sequence[JsonObject]) -> str:
    return json.dumps(messages, ensure_ascii=False)


# Conversations are columns of the type JSON, which `datasets` (4.7 and later) decodes to the same objects: as structs,
# Arrow would fill every message and all arguments with the keys of the others, as nulls. Tools are JSON in text, which
# TRL decodes itself.


def chat_file(config: ChatConfig) -> ParquetFile:
    """The file of `chat`."""
    talk = ("messages",) if config.layout == "messages" else ("prompt", "completion")
    origin = [("rollout_id", pa.string()), ("group_id", pa.string()), ("reward", pa.float64())]
    return ParquetFile(pa.schema([*((name, pa.json_()) for name in talk), ("tools", pa.string()), *origin]))


DPO: Final = ParquetFile(
    pa.schema(
        [
            ("prompt", pa.json_()),
            ("chosen", pa.json_()),
            ("rejected", pa.json_()),
            ("tools", pa.string()),
            ("group_id", pa.string()),
            ("chosen_rollout_id", pa.string()),
            ("rejected_rollout_id", pa.string()),
            ("chosen_reward", pa.float64()),
            ("rejected_reward", pa.float64()),
        ]
    )
)
