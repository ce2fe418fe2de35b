"""Prompt: what a call was asked, rebuilt from the turns that store only what was new.

Invariant: this is the inverse of the lineage. A turn adds to its parent's path; a turn without a parent, or whose
parent's path is unknown, holds the whole. So every prompt follows from the turns before it, in one pass.
"""

from collections.abc import Sequence
from typing import NamedTuple

from art_otel.calls import Message, TokenIds
from art_otel.trajectories import Turn


class Prompt(NamedTuple):
    """The messages and token ids before a completion, each None when unknown."""

    messages: tuple[Message, ...] | None = None
    token_ids: TokenIds | None = None


def rebuild_prompts(turns: Sequence[Turn]) -> dict[int, Prompt]:
    """The prompt of each call, by the call's position.

    The first turn of a call tells its prompt: the parent's path (its prompt and what it sampled) with the turn's edits
    in place, then the turn's messages; None if these are None. Token ids likewise, but a path has ids only where both
    its prompt and its completion have them. Raises ValueError for turns that are no forest.

    Time and memory are those of the prompts themselves, whose messages are shared.
    """
    prompts: dict[int, Prompt] = {}
    for position, turn in enumerate(turns):
        if turn.parent is not None and not 0 <= turn.parent < position:
            raise ValueError(f"turn {position} has parent {turn.parent}, which does not stand before it")
        if turn.call not in prompts:
            path = Prompt() if turn.parent is None else _path(turns[turn.parent], prompts)
            prompts[turn.call] = Prompt(_messages(turn, path), _token_ids(turn, path))
    return prompts


def _path(turn: Turn, prompts: dict[int, Prompt]) -> Prompt:
    """The turn's prompt and what it sampled."""
    prompt = prompts[turn.call]
    sampled = () if turn.message is None else (turn.message,)
    return Prompt(
        None if prompt.messages is None else prompt.messages + sampled,
        None if prompt.token_ids is None or turn.token_ids is None else prompt.token_ids + turn.token_ids,
    )


def _messages(turn: Turn, path: Prompt) -> tuple[Message, ...] | None:
    if turn.messages is None or not path.messages:
        return turn.messages
    if not turn.edits:
        return path.messages + turn.messages
    repeated = list(path.messages)
    for edit in turn.edits:
        if not 0 <= edit.index < len(repeated):
            raise ValueError(f"an edit of message {edit.index} in a path of {len(repeated)}")
        repeated[edit.index] = edit.message
    return (*repeated, *turn.messages)


def _token_ids(turn: Turn, path: Prompt) -> TokenIds | None:
    if turn.context_token_ids is None or path.token_ids is None:
        return turn.context_token_ids
    return path.token_ids + turn.context_token_ids
