"""ArtMessage: the columns that ART reads, in ART's words.

Invariant: ART 0.5's own reader takes these columns as they are: metadata values are flat scalars, tool calls are JSON
text in OpenAI's form, and one list of messages tells the main history. Source of the format:
`art.utils.trajectory_logging` of openpipe-art 0.5.18.
"""

from collections.abc import Mapping

import msgspec

from art_otel.calls import Message
from art_otel.spans import Value
from art_otel.store.json_text import json_text
from art_otel.trajectories.trajectory import Trajectory, Turn


class ArtMessage(msgspec.Struct, frozen=True):
    """A message of the main history. `trainable` marks what the policy sampled in a call that did not fail."""

    role: str
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    trainable: bool


def art_messages(trajectory: Trajectory) -> tuple[ArtMessage, ...] | None:
    """The main history: the path to the last call's first sampled message. None when a part of it is unknown.

    Each message stands as it was first given or sampled, also where a later prompt repeats it in other words.
    """
    messages: list[ArtMessage] = []
    path = _main_path(trajectory)
    for turn in path:
        if turn.messages is None or turn.message is None:
            return None
        messages.extend(_art_message(message, trainable=False) for message in turn.messages)
        messages.append(_art_message(turn.message, trainable=not trajectory.calls[turn.call].failed))
    return tuple(messages) if path else None


def art_metadata(metadata: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """The metadata with what is no scalar as JSON text, and apart from it what is no scalar as it is."""
    nested = {key: value for key, value in metadata.items() if not isinstance(value, str | int | float | None)}
    texts = {key: json_text(value) for key, value in nested.items()}
    return {**metadata, **texts}, nested


def _main_path(trajectory: Trajectory) -> list[Turn]:
    """The turns from the root to the last call's first choice; none if nothing was sampled."""
    turns = trajectory.turns
    sampled = [turn for turn in turns if turn.message is not None]
    if not sampled:
        return []
    path = [max(sampled, key=lambda turn: (turn.call, -(turn.choice or 0)))]
    while (parent := path[-1].parent) is not None:
        path.append(turns[parent])
    path.reverse()
    return path


def _art_message(message: Message, *, trainable: bool) -> ArtMessage:
    return ArtMessage(message.role, message.content, _tool_calls(message), message.tool_call_id, trainable)


def _tool_calls(message: Message) -> str | None:
    if not message.tool_calls:
        return None
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return json_text(calls)
