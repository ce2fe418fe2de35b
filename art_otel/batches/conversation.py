"""Conversation: one history of a trajectory as chat messages, with what is trained in it.

Invariant: trained is what the history trains; a history with a message that nobody recorded is no conversation.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from art_otel.batches.chat_message import ChatMessage, chat_message
from art_otel.spans import Value
from art_otel.trajectories import History, HistoryMessage, Trajectory


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
        """Which of them are trained here."""
        return tuple(entry.trained for entry in self.messages)


def conversation(trajectory: Trajectory, history: History) -> Conversation | str:
    """The conversation of a history, or the reason why it is none: `messages unknown` or `nothing trained`."""
    if history.messages is None:
        return "messages unknown"
    if not any(entry.trained for entry in history.messages):
        return "nothing trained"
    return Conversation(history.messages, _tools(trajectory, history.turns), history.turns)


def main_conversation(trajectory: Trajectory, paths: Iterable[History]) -> Conversation | str:
    """The longest conversation of a trajectory's paths, or why there is none.

    It has the most turns; of equally long ones it is that of the latest call and there of the first choice.
    """
    reason = "nothing sampled"
    longest: tuple[tuple[int, int, int], Conversation] | None = None
    for history in paths:
        talk = conversation(trajectory, history)
        if isinstance(talk, str):
            reason = talk
        elif longest is None or _rank(trajectory, talk) > longest[0]:
            longest = (_rank(trajectory, talk), talk)
    return reason if longest is None else longest[1]


def _rank(trajectory: Trajectory, talk: Conversation) -> tuple[int, int, int]:
    leaf = trajectory.turns[talk.turns[-1]]
    return (len(talk.turns), leaf.call, -(leaf.choice or 0))


def _tools(trajectory: Trajectory, turns: Sequence[int]) -> tuple[Value, ...] | None:
    told = [tools for turn in turns if (tools := trajectory.calls[trajectory.turns[turn].call].tools) is not None]
    if not told:
        return None
    return tuple({json.dumps(tool, sort_keys=True, default=repr): tool for tools in told for tool in tools}.values())
