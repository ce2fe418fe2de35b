"""MessagePaths: which turn continues which by its messages alone, and what it was given in between.

Invariant: over all paths every sampled message is on at least one, and each path leads from a root to a sampled leaf.

A trajectory's own histories break where a server tokenised a conversation anew. Where only messages count the
conversation goes on, and a template that drops earlier thinking breaks nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from art_otel.calls import Message
from art_otel.trajectories import History, HistoryMessage, Trajectory, Turn
from art_otel.trajectories.history import path_messages

Given: TypeAlias = tuple[Message, ...] | None
"""The messages between the path above a turn and what it sampled; None where nobody recorded the prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagePaths:
    """`given` has shape (turns,). `paths` are positions of turns, the main one first, the others as their leaves."""

    given: tuple[Given, ...]
    paths: tuple[tuple[int, ...], ...]


def message_paths(trajectory: Trajectory) -> MessagePaths:
    """Every path to a sampled leaf. The main one has known messages where any has, then most turns, then is latest."""
    turns = trajectory.turns
    above = [_above(turns, turn) for turn in turns]
    parents = [parent for parent, _ in above]
    given = tuple(messages for _, messages in above)
    sampled = [turn.message is not None for turn in turns]
    continued = {parent for place, parent in enumerate(parents) if sampled[place]}
    paths = [_path(parents, leaf) for leaf in range(len(turns)) if sampled[leaf] and leaf not in continued]
    main = max(paths, key=lambda path: _rank(turns, given, path), default=())
    return MessagePaths(
        given=given, paths=tuple([main, *(path for path in paths if path is not main)] if paths else ())
    )


def message_histories(trajectory: Trajectory) -> tuple[History, ...]:
    """The paths as histories of messages. All that a path samples is trained in it, shared with others or not.

    Only what is `untrained` is not.
    """
    found = message_paths(trajectory)
    return tuple(History(turns=path, messages=_messages(trajectory, found.given, path)) for path in found.paths)


def _above(turns: Sequence[Turn], turn: Turn) -> tuple[int | None, Given]:
    """The turn that this one continues, and the messages since."""
    if turn.drifted_from is not None and turn.messages is not None:
        path, above = path_messages(turns, turn.drifted_from), path_messages(turns, turn.parent)
        if path is not None and above is not None:
            prompt = (*above, *turn.messages)
            if len(path) <= len(prompt) and all(map(_same, path, prompt)):
                return turn.drifted_from, prompt[len(path) :]
    return turn.parent, turn.messages


def _same(one: Message, other: Message) -> bool:
    return one is other or one == other or one.identity == other.identity


def _path(parents: Sequence[int | None], leaf: int) -> tuple[int, ...]:
    path = [leaf]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return tuple(reversed(path))


def _rank(turns: Sequence[Turn], given: Sequence[Given], path: tuple[int, ...]) -> tuple[bool, int, int, int]:
    leaf = turns[path[-1]]
    known = all(given[turn] is not None for turn in path)
    return (known, len(path), leaf.call, -(leaf.choice or 0))


def _messages(trajectory: Trajectory, given: Sequence[Given], path: Sequence[int]) -> tuple[HistoryMessage, ...] | None:
    messages: list[HistoryMessage] = []
    for position in path:
        turn, prompt = trajectory.turns[position], given[position]
        if prompt is None or turn.message is None:
            return None
        messages += map(_given_message, prompt)
        messages.append(HistoryMessage(message=turn.message, turn=position, trained=turn.untrained is None))
    return tuple(messages)


def _given_message(message: Message) -> HistoryMessage:
    return HistoryMessage(message=message)
