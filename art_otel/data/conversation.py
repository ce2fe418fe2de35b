"""Conversation: one history of a trajectory as chat messages, with what is trained in it.

Invariant: trained is what the history trains and no option leaves out (`completions`); a history with a message that
nobody recorded is no conversation. The main conversation stands for the whole trajectory: it trains all that it holds
and that may be trained.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from art_otel.spans import Value
from art_otel.store import Wanted
from art_otel.trajectories import ChatMessage, History, HistoryMessage, Trajectory, chat_message, main_history

MESSAGES: Final = Wanted(prompts=False)
"""Turns with their messages: all that conversations need."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a history, from its first to the last sampled one. `turns` are those whose messages are sampled.

    `tools` are the tools that the calls on its path had, each once, None where no call recorded whether it had any.
    """

    messages: tuple[HistoryMessage, ...]
    tools: tuple[Value, ...] | None
    turns: tuple[int, ...]

    @property
    def first_sampled(self) -> int:
        """The position of the first sampled message: what stands before it is the prompt."""
        return next(index for index, entry in enumerate(self.messages) if entry.turn is not None)

    @property
    def chat(self) -> tuple[ChatMessage, ...]:
        """The messages in OpenAI's words."""
        return tuple(chat_message(entry.message) for entry in self.messages)

    @property
    def train(self) -> tuple[bool, ...]:
        """Which of the messages are trained here."""
        return tuple(entry.trained for entry in self.messages)


def conversation(trajectory: Trajectory, history: History, reasons: Sequence[str | None]) -> Conversation | str:
    """The conversation of a history, or the reason why it is none: `messages unknown`, `nothing trained`, or an option.

    `reasons` says why an option leaves completions out, with the shape (turns,): see `CompletionChoice.reasons`.
    """
    if history.messages is None:
        return "messages unknown"
    trained = [entry.turn for entry in history.messages if entry.trained and entry.turn is not None]
    left_out = Counter(reason for turn in trained if (reason := reasons[turn]) is not None)
    if left_out.total() == len(trained):
        return left_out.most_common(1)[0][0] if left_out else "nothing trained"
    messages = tuple(
        replace(entry, trained=False) if entry.turn is not None and reasons[entry.turn] is not None else entry
        for entry in history.messages
    )
    last = max(position for position, entry in enumerate(messages) if entry.turn is not None)
    return Conversation(messages[: last + 1], _tools(trajectory, history.turns), history.turns)


def main_conversation(trajectory: Trajectory, reasons: Sequence[str | None]) -> Conversation | str:
    """The conversation of the main history, alone: what it shares with others is trained in it. Or why it is none."""
    history = main_history(trajectory)
    if history is None:
        return "nothing sampled"
    messages = history.messages and tuple(_trained_alone(entry, trajectory) for entry in history.messages)
    return conversation(trajectory, replace(history, messages=messages), reasons)


def _trained_alone(entry: HistoryMessage, trajectory: Trajectory) -> HistoryMessage:
    return replace(entry, trained=entry.turn is not None and trajectory.turns[entry.turn].text_untrained is None)


def _tools(trajectory: Trajectory, turns: Sequence[int]) -> tuple[Value, ...] | None:
    recorded = [tools for turn in turns if (tools := trajectory.calls[trajectory.turns[turn].call].tools) is not None]
    if not recorded:
        return None
    return tuple(
        {json.dumps(tool, sort_keys=True, default=repr): tool for tools in recorded for tool in tools}.values()
    )
