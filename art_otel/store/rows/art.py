"""ArtMessage: the columns that ART reads, in ART's words.

Invariant: ART 0.5's own reader takes these columns as they are: metadata values are flat scalars, tool calls are JSON
text in OpenAI's form, and one list of messages holds the main history. Source of the format:
`art.utils.trajectory_logging` of openpipe-art 0.5.18.
"""

from collections.abc import Mapping

import msgspec

from art_otel.calls import Message
from art_otel.spans import Value
from art_otel.store.rows.json_text import json_text
from art_otel.trajectories import Trajectory, main_history


class ArtMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of the main history. `trainable` marks a sampled one whose turn is to be trained."""

    role: str
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    trainable: bool


def art_messages(trajectory: Trajectory) -> tuple[ArtMessage, ...] | None:
    """The messages of the main history; None where nothing was sampled or nobody recorded how it began."""
    main = main_history(trajectory)
    if main is None or main.messages is None:
        return None
    turns = trajectory.turns
    return tuple(
        _art_message(entry.message, trainable=entry.turn is not None and turns[entry.turn].untrained is None)
        for entry in main.messages
    )


def art_metadata(metadata: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """The metadata with nested values as JSON text, and apart from it the nested values as they are."""
    nested = {key: value for key, value in metadata.items() if not isinstance(value, str | int | float | None)}
    texts = {key: json_text(value) for key, value in nested.items()}
    return {**metadata, **texts}, nested


def _art_message(message: Message, *, trainable: bool) -> ArtMessage:
    tool_calls = _tool_calls(message) if message.tool_calls else None
    return ArtMessage(message.role, message.content, tool_calls, message.tool_call_id, trainable)


def _tool_calls(message: Message) -> str:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return json_text(calls)
