"""Conversations: histories as rows of `sft`, the first prompt of each group as a row of `prompts`, and rows read back.

Invariant: content is text. A row is what verl's reader takes; if there is none, the reason is counted. A message that
is read back has only the fields that it had.

Sources: `MultiTurnSFTDataset` and `RLHFDataset` of verl 0.9.1.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import msgspec
import pyarrow as pa
from msgspec import Meta

from art_otel.exporting import (
    NO_ASSISTANT,
    ExportStats,
    FormatError,
    MessageExample,
    NoOptions,
    ParquetFile,
    Row,
    ScoredTrajectory,
    encode_each,
    text_message,
)
from art_otel.trajectories import Trajectory, chat_message

END_CUT: Final = "messages behind the last trained one cut"
NO_PROMPT: Final = "no prompt recorded"
TOOL_CALLS: Final = "a prompt with tool calls or tool results"
SAME_GROUP: Final = "the prompt of its group is already in the file"


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptsConfig:
    """Options of `prompts`."""

    data_source: Annotated[
        str | None, Meta(description="the name by which verl chooses the reward function (default: the rollout's name)")
    ] = None
    ground_truth: Annotated[str, Meta(description="the name of the metadata that is reward_model.ground_truth")] = (
        "ground_truth"
    )


def encode_sft(items: Iterator[MessageExample], _config: NoOptions, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each example: `messages`, each with `train` (null if it is not the assistant's), and `tools`."""
    return encode_each(items, lambda example: _sft(example, stats), stats)


def encode_prompts(items: Iterator[ScoredTrajectory], config: PromptsConfig, stats: ExportStats) -> Iterator[Row]:
    """Yield a row for each group: the prompt of its first trajectory that has one.

    A trajectory without a group is a group of its own.
    """
    seen: set[str] = set()
    index = 0
    for item in items:
        trajectory = item.trajectory
        if trajectory.group_id in seen:
            stats.trajectories_skipped[SAME_GROUP] += 1
            continue
        try:
            yield _prompt(trajectory, index, config, stats)
        except FormatError as error:
            stats.trajectories_skipped[str(error)] += 1
            continue
        index += 1
        if trajectory.group_id is not None:
            seen.add(trajectory.group_id)


def _sft(example: MessageExample, stats: ExportStats) -> Row:
    end = max(position for position, train in enumerate(example.train) if train) + 1
    messages: list[Row] = []
    for message, train in zip(example.messages[:end], example.train, strict=False):
        if train and message["role"] != "assistant":
            raise FormatError(NO_ASSISTANT)
        messages.append({**text_message(message, stats), "train": train if message["role"] == "assistant" else None})
    if len(example.messages) > end:
        stats.changed[END_CUT] += 1
    return {
        "messages": messages,
        "tools": [json.dumps(tool, ensure_ascii=False) for tool in example.tools or ()],
        "rollout_id": example.rollout_id,
        "group_id": example.group_id,
        "reward": example.reward,
    }


def _prompt(trajectory: Trajectory, index: int, config: PromptsConfig, stats: ExportStats) -> Row:
    input_messages = trajectory.calls[0].input_messages if trajectory.calls else None
    if not input_messages:
        raise FormatError(NO_PROMPT)
    messages = [text_message(chat_message(message), stats) for message in input_messages]
    if any("tool_calls" in message or "tool_call_id" in message for message in messages):
        raise FormatError(TOOL_CALLS)
    truth = trajectory.metadata.get(config.ground_truth)
    return {
        "data_source": config.data_source or trajectory.name,
        "prompt": [{name: message[name] for name in ("role", "content")} for message in messages],
        "ability": None,
        "reward_model": {
            "style": "rule",
            "ground_truth": truth if isinstance(truth, str | None) else json.dumps(truth, ensure_ascii=False),
        },
        "extra_info": {
            "index": index,
            "split": trajectory.split,
            "group_id": trajectory.group_id,
            "rollout_id": trajectory.rollout_id,
        },
    }


# Explicit schemas, so that files of several exports fit together. A tool is JSON in text: as structs, Arrow would fill
# the parameters of each tool with those of all others, as nulls.

_CALL: Final = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
_MESSAGE: Final = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("reasoning_content", pa.string()),
        ("tool_calls", pa.list_(_CALL)),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
        ("train", pa.bool_()),
    ]
)

SFT: Final = ParquetFile(
    pa.schema(
        [
            ("messages", pa.list_(_MESSAGE)),
            ("tools", pa.list_(pa.string())),
            ("rollout_id", pa.string()),
            ("group_id", pa.string()),
            ("reward", pa.float64()),
        ]
    )
)
_EXTRA: Final = [("index", pa.int64()), ("split", pa.string()), ("group_id", pa.string()), ("rollout_id", pa.string())]
PROMPTS: Final = ParquetFile(
    pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            ("extra_info", pa.struct(_EXTRA)),
        ]
    )
)


def template_message(message: Mapping[str, Any], *, as_text: bool) -> Row:
    """A message of an `sft` row as a chat template takes it, without the nulls of its columns.

    Arguments of tool calls that are a JSON object are parsed, unless `as_text`. Others stay text, also those that are
    invalid because of half a character or NaN.
    """
    fields = {name: value for name, value in message.items() if value is not None}
    if "tool_calls" in fields:
        fields["tool_calls"] = [_call(call, as_text=as_text) for call in fields["tool_calls"]]
    return fields


def _call(call: Mapping[str, Any], *, as_text: bool) -> Row:
    function = call["function"]
    arguments = function["arguments"] if as_text else _parsed(function["arguments"])
    call_fields = {name: value for name, value in call.items() if value is not None}
    return {**call_fields, "function": {**function, "arguments": arguments}}


def _parsed(arguments: str) -> object:
    try:
        value: object = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return cast(object, value) if isinstance(value, dict) else arguments
