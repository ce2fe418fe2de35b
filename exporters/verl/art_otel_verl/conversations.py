"""Conversations: histories as rows of `sft`, and what stands before them as rows of `prompts`.

Invariant: content is text. A row is what verl's reader takes, or there is none and the reason is noted.

Sources: `MultiTurnSFTDataset` and `RLHFDataset` of verl 0.9.1.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from art_otel.exporting import (
    NO_ASSISTANT,
    ExportStats,
    FormatError,
    MessageExample,
    ScoredTrajectory,
    encode_each,
    text_message,
)
from art_otel.trajectories import Trajectory, chat_message
from art_otel_verl.config import PromptsConfig, SftConfig

Row: TypeAlias = dict[str, Any]

END_CUT: Final = "messages behind the last trained one cut"
NO_PROMPT: Final = "no prompt recorded"
TOOL_CALLS: Final = "a prompt with tool calls or tool results"
SAME_GROUP: Final = "the prompt of its group is there already"


def encode_sft(items: Iterator[MessageExample], _config: SftConfig, stats: ExportStats) -> Iterator[Row]:
    """A row an example: `messages`, each with `train` (null where it is not the assistant's), and `tools`."""
    return encode_each(items, lambda example: _sft(example, stats), stats)


def encode_prompts(items: Iterator[ScoredTrajectory], config: PromptsConfig, stats: ExportStats) -> Iterator[Row]:
    """A row a group: what its first trajectory was asked. One without a group is a group of its own."""
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
