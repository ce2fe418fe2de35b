"""Drift: where token ids and messages disagree about which turn a prompt continues.

Invariant: of each kind there is at most one entry a call, at its first turn, and only where both ids and messages are
known to say something. The ids decide in any case.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from art_otel.trajectories.history import path_messages
from art_otel.trajectories.token_lineage import TokenLineage, shared_start
from art_otel.trajectories.trajectory import Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """A prompt that continues an earlier path by its messages while its token ids do not: it was tokenised anew.

    `turn` is the first turn of the call whose prompt it is, `drifted_from` the turn that ended the earlier path. That
    path's first `repeated_tokens` tokens stand in the prompt too, its other `replaced_tokens` do not; both are None
    where the ids of either are unknown.
    """

    turn: int
    drifted_from: int
    repeated_tokens: int | None
    replaced_tokens: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageDrift:
    """A prompt that continues an earlier path by its token ids while its messages do not: they were written anew.

    A client spelt them otherwise or left some out, or an instrumentor recorded them otherwise. `turn` is the first turn
    of the call whose prompt it is, `parent` the turn whose path its ids continue, `parent_by_messages` the stored one,
    `Turn.parent` (None: it continues none). `tokens` is how many tokens of the one path are beyond the other, None
    where the ids of the stored parent's path are unknown.
    """

    turn: int
    parent: int
    parent_by_messages: int | None
    tokens: int | None


def find_drifts(turns: Sequence[Turn], lineage: TokenLineage) -> Iterator[Drift]:
    """Where messages continue a turn and ids do not."""
    drifted = {position: turn.drifted_from for position, turn in enumerate(turns) if turn.drifted_from is not None}
    for position in _once_a_call(turns, drifted):
        drifted_from = drifted[position]
        path, prompt = _path_ids(turns, lineage, drifted_from), _prompt_ids(turns, lineage, position)
        repeated = None if path is None or prompt is None else shared_start(path, prompt) // 4
        yield Drift(
            turn=position,
            drifted_from=drifted_from,
            repeated_tokens=repeated,
            replaced_tokens=None if path is None or repeated is None else len(path) // 4 - repeated,
        )


def find_departures(turns: Sequence[Turn], lineage: TokenLineage) -> list[MessageDrift]:
    """Where ids continue a turn that is not on the path of the stored parent: drift, unless the messages continue both.

    Needs no messages; with them `messages_differ` tells which it is.
    """
    apart = {
        position: parent
        for position, (turn, parent) in enumerate(zip(turns, lineage.parents, strict=True))
        if parent is not None and parent != turn.parent and not _leads_to(turns, parent, turn.parent)
    }
    sizes = _path_sizes(turns, lineage) if apart else []
    found: list[MessageDrift] = []
    for position in _once_a_call(turns, apart):
        parent, stored = apart[position], turns[position].parent
        size, shared = sizes[parent], 0 if stored is None else sizes[stored]
        tokens = None if size is None or shared is None else size - shared
        found.append(MessageDrift(turn=position, parent=parent, parent_by_messages=stored, tokens=tokens))
    return found


def messages_differ(turns: Sequence[Turn], departure: MessageDrift) -> bool | None:
    """Whether the prompt does not begin with the messages of the path that its ids continue. None: nobody knows."""
    turn = turns[departure.turn]
    path, above = path_messages(turns, departure.parent), path_messages(turns, turn.parent)
    if path is None or above is None or turn.messages is None:
        return None
    prompt = [*above, *turn.messages]
    pairs = zip(path, prompt, strict=False)
    return len(path) > len(prompt) or any(one is not other and one.identity != other.identity for one, other in pairs)


def _once_a_call(turns: Sequence[Turn], positions: Iterable[int]) -> list[int]:
    """The first of a call's positions: its turns have one prompt."""
    first: dict[int, int] = {}
    for position in positions:
        first.setdefault(turns[position].call, position)
    return list(first.values())


def _leads_to(turns: Sequence[Turn], turn: int, end: int | None) -> bool:
    """Whether the turn is on the path to `end`."""
    while end is not None and end != turn:
        end = turns[end].parent
    return end is not None


def _path_sizes(turns: Sequence[Turn], lineage: TokenLineage) -> list[int | None]:
    """How many tokens the path to each turn's completion has."""
    sizes: list[int | None] = []
    for turn, parent, context in zip(turns, lineage.parents, lineage.contexts, strict=True):
        above = 0 if parent is None else sizes[parent]
        if above is None or context is None or turn.token_ids is None:
            sizes.append(None)
        else:
            sizes.append(above + len(context) + len(turn.token_ids))
    return sizes


def _prompt_ids(turns: Sequence[Turn], lineage: TokenLineage, position: int) -> bytes | None:
    """The ids of the whole prompt, as bytes."""
    context, parent = lineage.contexts[position], lineage.parents[position]
    if context is None:
        return None
    above = b"" if parent is None else _path_ids(turns, lineage, parent)
    return None if above is None else above + context.data


def _path_ids(turns: Sequence[Turn], lineage: TokenLineage, position: int) -> bytes | None:
    """The ids of the whole path that ends with the turn's completion, as bytes."""
    pieces: list[bytes] = []
    for turn in lineage.path_to(position):
        context, sampled = lineage.contexts[turn], turns[turn].token_ids
        if context is None or sampled is None:
            return None
        pieces += (context.data, sampled.data)
    return b"".join(pieces)
