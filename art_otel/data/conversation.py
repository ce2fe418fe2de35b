"""Conversation: one history of a trajectory as chat messages, with a flag for each trained message.

Invariant: a message is trained if its history trains it and no option leaves it out. A history with an unrecorded
message is no conversation.

The main conversation is used alone for its whole trajectory, so it trains every message that may be trained. An answer
that continues the assistant's last message (a prefill) is joined with it to one message, trained like the answer:

    user: Two and two?    assistant: The answer    (sampled) is 4    ->    assistant: The answer is 4
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from art_otel.calls import CallRecord
from art_otel.conventions import join_messages
from art_otel.data.choosing import CUT, FILTERED, NOT_THE_POLICYS
from art_otel.spans import Value
from art_otel.store import Wanted
from art_otel.trajectories import ChatMessage, History, HistoryMessage, Trajectory, Turn, chat_message, main_history

MESSAGES: Final = Wanted()
"""Turns with their messages: all that conversations need."""

_ANTHROPIC: Final = re.compile("anthropic|claude", re.IGNORECASE)
"""Names of Anthropic's models and of providers of these."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a history, up to the last sampled one. `turns` are the turns that sampled messages of it.

    `tools` are the tool definitions of the calls on its path, each once; None if no call recorded its definitions.
    """

    messages: tuple[HistoryMessage, ...]
    tools: tuple[Value, ...] | None
    turns: tuple[int, ...]

    @property
    def first_sampled(self) -> int:
        """The position of the first sampled message. The messages before it are the prompt."""
        return next(index for index, entry in enumerate(self.messages) if entry.turn is not None)

    @property
    def chat(self) -> tuple[ChatMessage, ...]:
        """The messages in OpenAI's chat format."""
        return tuple(chat_message(entry.message) for entry in self.messages)

    @property
    def train(self) -> tuple[bool, ...]:
        """Whether each message is trained here. Shape: (messages,)."""
        return tuple(entry.trained for entry in self.messages)


def conversation(trajectory: Trajectory, history: History, reasons: Sequence[str | None]) -> Conversation | str:
    """The conversation of a history, or a reason why there is none: `messages unknown`, `nothing trained`, an option's.

    `reasons` is why an option leaves each completion out (`ChosenRollouts`). Shape: (turns,).
    """
    if history.messages is None:
        return "messages unknown"
    trained = [entry.turn for entry in history.messages if entry.trained and entry.turn is not None]
    left_out = Counter(reason for turn in trained if (reason := reasons[turn]) is not None)
    chosen = [
        replace(entry, trained=False) if entry.turn is not None and reasons[entry.turn] is not None else entry
        for entry in history.messages
    ]
    messages = _with_prefills_joined(trajectory, chosen, reasons)
    if not any(entry.trained for entry in messages):
        return left_out.most_common(1)[0][0] if left_out else "nothing trained"
    last = max(position for position, entry in enumerate(messages) if entry.turn is not None)
    return Conversation(messages[: last + 1], _tools(trajectory, history.turns), history.turns)


def main_conversation(trajectory: Trajectory, reasons: Sequence[str | None]) -> Conversation | str:
    """The conversation of the main history, or the reason why there is none.

    It trains also what it shares with other histories. Only the policy's turns count when the main history is chosen,
    not those of a judge or a user simulator.
    """
    others = {turn for turn, reason in enumerate(reasons) if reason in NOT_THE_POLICYS}
    history = main_history(trajectory, others)
    if history is None:
        return "nothing sampled"
    messages = history.messages and tuple(_trained_alone(entry, trajectory) for entry in history.messages)
    return conversation(trajectory, replace(history, messages=messages), reasons)


def _trained_alone(entry: HistoryMessage, trajectory: Trajectory) -> HistoryMessage:
    return replace(entry, trained=entry.turn is not None and trajectory.turns[entry.turn].text_untrained is None)


def _with_prefills_joined(
    trajectory: Trajectory, messages: Sequence[HistoryMessage], reasons: Sequence[str | None]
) -> tuple[HistoryMessage, ...]:
    """Join each answer with the assistant message before it that it continues, which was given or sampled.

    A sampled message before it must be trainable, too; only a cut one may be, because the answer completes it.
    """
    turns, calls = trajectory.turns, trajectory.calls
    joined: list[HistoryMessage] = []
    for entry in messages:
        before = joined[-1] if joined else None
        if entry.turn is None or before is None or before.role != "assistant":
            joined.append(entry)
            continue
        turn = turns[entry.turn]
        call = calls[turn.call]
        if not _goes_on(call, turn):
            joined.append(entry)
            continue
        # With `echo`, vLLM's answer already begins with the message that it continues.
        is_whole = call.parameters.get("echo") is True
        message = entry.message if is_whole else join_messages((before.message, entry.message))
        may_be_trained = before.turn is None or (
            turns[before.turn].text_untrained is None and reasons[before.turn] in (None, CUT, FILTERED)
        )
        joined[-1] = replace(entry, message=message, trained=entry.trained and may_be_trained)
    return tuple(joined)


def _goes_on(call: CallRecord, turn: Turn) -> bool:
    """Whether the server continued the assistant message at the end of the prompt, and began no new message.

    vLLM and SGLang do this on request, Anthropic always.
    """
    if "continue_final_message" in call.parameters:
        return call.parameters["continue_final_message"] is True
    names = (call.provider, call.response_model, call.request_model)
    # Anthropic gives no token ids: another server with Anthropic's API does, and such servers begin a new message.
    return not turn.has_tokens and any(name is not None and _ANTHROPIC.search(name) for name in names)


def _tools(trajectory: Trajectory, turns: Sequence[int]) -> tuple[Value, ...] | None:
    recorded = [tools for turn in turns if (tools := trajectory.calls[trajectory.turns[turn].call].tools) is not None]
    if not recorded:
        return None
    return tuple(
        {json.dumps(tool, sort_keys=True, default=repr): tool for tools in recorded for tool in tools}.values()
    )
