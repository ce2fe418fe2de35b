"""Conversations: histories and pairs as rows of `chat` and `dpo`.

Invariant: a row is what TRL's data utilities call conversational, or there is none and the reason is noted.

Source: the dataset formats of TRL 1.16, and what `SFTTrainer` and `DPOTrainer` do with them.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from art_otel.exporting import (
    NO_ASSISTANT,
    NO_PROMPT,
    SAME,
    ExportStats,
    FormatError,
    MessageExample,
    PreferencePair,
    answers,
    encode_each,
)
from art_otel_trl.config import ChatConfig, DpoConfig
from art_otel_trl.messages import Message, template_messages, tools_json

Row: TypeAlias = dict[str, Any]

END_CUT: Final = "messages behind the last trained one cut"
TRAINED_TOO: Final = "conversations in which TRL trains answers that are not trained here"
BETWEEN: Final = "sides with messages between the answers, which TRL compares too"


def encode_chat(items: Iterator[MessageExample], config: ChatConfig, stats: ExportStats) -> Iterator[Row]:
    """A row an example: `messages`, or `prompt` and `completion`; and `tools`."""
    return encode_each(items, lambda example: _chat(example, config, stats), stats)


def encode_dpo(items: Iterator[PreferencePair], config: DpoConfig, stats: ExportStats) -> Iterator[Row]:
    """A row a pair: `prompt`, `chosen`, `rejected` and `tools`."""
    return encode_each(items, lambda pair: _dpo(pair, config, stats), stats)


def _chat(example: MessageExample, config: ChatConfig, stats: ExportStats) -> Row:
    trained_at = [position for position, train in enumerate(example.train) if train]
    start, end = trained_at[0], trained_at[-1] + 1
    if any(example.messages[position]["role"] != "assistant" for position in trained_at):
        raise FormatError(NO_ASSISTANT)
    if start == 0 and config.layout == "prompt_completion":
        raise FormatError(NO_PROMPT)
    messages = template_messages(example.messages[:end], config.tool_arguments, stats)
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
    return {**talk, "tools": tools_json(example.tools), **origin}


def _dpo(pair: PreferencePair, config: DpoConfig, stats: ExportStats) -> Row:
    if not pair.prompt:
        raise FormatError(NO_PROMPT)
    prompt = template_messages(pair.prompt, config.tool_arguments, stats)
    chosen, rejected = (_side(side, config, stats) for side in (pair.chosen, pair.rejected))
    if chosen == rejected:
        raise FormatError(SAME)
    return {
        "prompt": _json(prompt),
        "chosen": _json(chosen),
        "rejected": _json(rejected),
        "tools": tools_json(pair.tools),
        "group_id": pair.group_id,
        "chosen_rollout_id": pair.chosen_rollout_id,
        "rejected_rollout_id": pair.rejected_rollout_id,
        "chosen_reward": pair.chosen_reward,
        "rejected_reward": pair.rejected_reward,
    }


def _side(side: Sequence[Message], config: DpoConfig, stats: ExportStats) -> list[Message]:
    """One side of a pair, which begins with what the policy sampled."""
    kept = answers(side, config.later_messages, stats)
    if any(message["role"] != "assistant" for message in kept):
        stats.changed[BETWEEN] += 1
    return template_messages(kept, config.tool_arguments, stats)


def _json(messages: Sequence[Message]) -> str:
    return json.dumps(messages, ensure_ascii=False)
