"""History: one path through the forest of turns, the shape a trainer reads.

Invariant: over all histories of a trajectory every sampled message is trained exactly once. A turn that several
histories share is trained in the first of them and is context in the others; what is `untrained` is context.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from art_otel.calls import Logprobs, Message, TokenIds
from art_otel.trajectories.token_history import token_history
from art_otel.trajectories.trajectory import Trajectory, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMessage:
    """A message of a history.

    `turn` is the position of the turn that sampled it, None for what was given to the model; `trained` says whether
    this history is where it is learnt.
    """

    message: Message
    turn: int | None = None
    trained: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The path from a root turn to a leaf: `turns` are positions in the trajectory, `messages` None when unknown.

    Where every turn has ids, `token_ids`, `loss_mask` (a byte a token, 1 where it is trained) and `logprobs` (0.0 where
    nothing was sampled; None where a trained token has none) have shape (tokens,); else they are None. Messages decide
    which turn continues which; `token_histories` follows the ids alone.
    """

    turns: tuple[int, ...]
    messages: tuple[HistoryMessage, ...] | None
    token_ids: TokenIds | None = None
    loss_mask: bytes | None = None
    logprobs: Logprobs | None = None


def histories(trajectory: Trajectory) -> tuple[History, ...]:
    """Every path from a root turn to a sampled leaf, in the order of the leaves."""
    turns = trajectory.turns
    sampled = [turn.message is not None for turn in turns]
    parents = {turn.parent for index, turn in enumerate(turns) if sampled[index]}
    trained_before: set[int] = set()
    found: list[History] = []
    for leaf in range(len(turns)):
        if not sampled[leaf] or leaf in parents:
            continue
        path = path_to(turns, leaf)
        trained = {turn for turn in path if turn not in trained_before and turns[turn].untrained is None}
        trained_before.update(trained)
        found.append(_history(turns, path, trained))
    return tuple(found)


def path_to(turns: Sequence[Turn], leaf: int) -> tuple[int, ...]:
    """The positions of the turns from the root to `leaf`."""
    path = [leaf]
    while (parent := turns[path[-1]].parent) is not None:
        path.append(parent)
    return tuple(reversed(path))


def _history(turns: Sequence[Turn], path: tuple[int, ...], trained: set[int]) -> History:
    messages = _messages(turns, path, trained)
    contexts = {position: turns[position].context_token_ids for position in path}
    if any(contexts[position] is None or turns[position].token_ids is None for position in path):
        return History(turns=path, messages=messages)
    tokens = token_history(turns, path, contexts, trained)
    return History(
        turns=path,
        messages=messages,
        token_ids=tokens.token_ids,
        loss_mask=tokens.loss_mask,
        logprobs=tokens.logprobs,
    )


def _messages(turns: Sequence[Turn], path: Sequence[int], trained: set[int]) -> tuple[HistoryMessage, ...] | None:
    messages: list[HistoryMessage] = []
    for index in path:
        turn = turns[index]
        if turn.messages is None or turn.message is None:
            return None
        messages.extend(HistoryMessage(message=message) for message in turn.messages)
        messages.append(HistoryMessage(message=turn.message, turn=index, trained=index in trained))
    return tuple(messages)


def path_messages(turns: Sequence[Turn], end: int | None) -> list[Message] | None:
    """The messages of the whole path that ends with what turn `end` sampled, as they were spelt first.

    None where nobody recorded one of them.
    """
    messages: list[Message] = []
    for position in () if end is None else path_to(turns, end):
        turn = turns[position]
        if turn.messages is None or turn.message is None:
            return None
        messages += (*turn.messages, turn.message)
    return messages
