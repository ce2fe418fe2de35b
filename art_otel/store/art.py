"""ArtMessage: the columns that ART reads, in ART's words.

Invariant: ART 0.5's own reader takes these columns as they are: metadata values are flat scalars, tool calls are JSON
text in OpenAI's form, and one list of messages tells the main history. Source of the format:
`art.utils.trajectory_logging` of openpipe-art 0.5.18.
"""

from collections.abc import Mapping, Sequence

import msgspec

from art_otel.calls import Message
from art_otel.spans import Value
from art_otel.store.json_text import json_text
from art_otel.trajectories.history import path_to
from art_otel.trajectories.trajectory import Trajectory, Turn


class ArtMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of the main history. `trainable` marks what the policy sampled and may learn."""

    role: str
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    trainable: bool


def art_messages(trajectory: Trajectory) -> tuple[ArtMessage, ...] | None:
    """The main history: of all paths whose messages are known, the one with most turns.

    Of equally long ones it is the path to the latest call's first choice; None when no path is known. Each message
    stands as it was first given or sampled, also where a later prompt repeats it in other words.
    """
    leaf = _main_leaf(trajectory.turns)
    if leaf is None:
        return None
    messages: list[ArtMessage] = []
    for position in path_to(trajectory.turns, leaf):
        turn = trajectory.turns[position]
        messages.extend([_art_message(message, trainable=False) for message in turn.messages or ()])
        if turn.message is not None:
            messages.append(_art_message(turn.message, trainable=turn.untrained is None))
    return tuple(messages)


def art_metadata(metadata: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """The metadata with what is no scalar as JSON text, and apart from it what is no scalar as it is."""
    nested = {key: value for key, value in metadata.items() if not isinstance(value, str | int | float | None)}
    texts = {key: json_text(value) for key, value in nested.items()}
    return {**metadata, **texts}, nested


def _main_leaf(turns: Sequence[Turn]) -> int | None:
    """The last turn of the main history. A parent stands before its children, so one pass knows every path's length."""
    lengths: list[int] = []
    main: int | None = None
    best = (0, 0, 0)
    for position, turn in enumerate(turns):
        above = 0 if turn.parent is None else lengths[turn.parent]
        known = turn.messages is not None and turn.message is not None and (turn.parent is None or above > 0)
        lengths.append(above + 1 if known else 0)
        # Long before short, then late before early, then a call's first choice before its others.
        rank = (lengths[position], turn.call, -(turn.choice or 0))
        if known and rank > best:
            main, best = position, rank
    return main


def _art_message(message: Message, *, trainable: bool) -> ArtMessage:
    tool_calls = _tool_calls(message) if message.tool_calls else None
    return ArtMessage(message.role, message.content, tool_calls, message.tool_call_id, trainable)


def _tool_calls(message: Message) -> str:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return json_text(calls)
