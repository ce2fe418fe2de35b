"""History: one message path from a root to a leaf, the shape in which conversations are trained.

Invariant: over all histories of a trajectory every completion to train is trained exactly once, in the first history
that holds it and whose messages are known. It is context in the others. A completion that must not be trained is
context in all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from art_otel.calls import Message
from art_otel.trajectories.model import Trajectory, Turn
from art_otel.trajectories.views.message_paths import path_to, prompt_messages


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMessage:
    """A message of a history.

    `turn` is the position of the turn that sampled it, None for what was given to the model; `trained` says whether
    this history is where it is trained.
    """

    message: Message
    turn: int | None = None
    trained: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The path from a root turn to a leaf: `turns` are positions in the trajectory.

    `messages` are written as they were first sent or sampled; None where nobody recorded one of them: the
    root's prompt, or a completion of which only tokens are known.
    """

    turns: tuple[int, ...]
    messages: tuple[HistoryMessage, ...] | None


def histories(trajectory: Trajectory) -> tuple[History, ...]:
    """Every message path from a root turn to a leaf, in the order of the leaves."""
    first_leaves = _first_leaves(trajectory.turns)
    return tuple(_history(trajectory.turns, leaf, first_leaves) for leaf in leaves(trajectory.turns))


def text_only_histories(trajectory: Trajectory) -> tuple[History, ...]:
    """The histories that train a completion without token ids, in which those with ids are context."""
    turns = trajectory.turns
    result: list[History] = []
    for history in histories(trajectory):
        if all(turns[turn].has_tokens for turn in history.turns):
            continue
        messages = history.messages and tuple(
            replace(entry, trained=entry.trained and entry.turn is not None and not turns[entry.turn].has_tokens)
            for entry in history.messages
        )
        result.append(replace(history, messages=messages))
    return tuple(result)


def leaves(turns: Sequence[Turn]) -> list[int]:
    """The turns whose message path no other turn continues."""
    continued = {turn.prompt.parent for turn in turns}
    return [position for position in range(len(turns)) if position not in continued]


def main_history(trajectory: Trajectory) -> History | None:
    """The history with most turns; of equally long ones the one that ends in the latest call's first choice.

    Histories with known messages are preferred. None where nothing was sampled.
    """
    turns = trajectory.turns
    depths: list[int] = []
    for turn in turns:
        parent = turn.prompt.parent
        depths.append(1 if parent is None else depths[parent] + 1)
    are_known = _known_paths(turns)
    leaf = max(
        leaves(turns),
        key=lambda leaf: (are_known[leaf], depths[leaf], turns[leaf].call, -turns[leaf].choice),
        default=None,
    )
    return None if leaf is None else _history(turns, leaf, _first_leaves(turns))


def _known_paths(turns: Sequence[Turn]) -> list[bool]:
    """Whether all messages of the path to each turn are known."""
    are_known: list[bool] = []
    for turn in turns:
        parent = turn.prompt.parent
        is_known = prompt_messages(turn.prompt, turns) is not None if parent is None else are_known[parent]
        are_known.append(is_known and turn.message is not None and not _is_tokens_only(turn))
    return are_known


def _first_leaves(turns: Sequence[Turn]) -> list[int]:
    """The first leaf of the paths through each turn, of those that are known if any is.

    The turn is trained in the history that leads to it.
    """
    are_known = _known_paths(turns)
    ranks = [(not is_known, position) for position, is_known in enumerate(are_known)]
    continued: set[int] = set()
    for position in reversed(range(len(turns))):
        parent = turns[position].prompt.parent
        if parent is not None:
            ranks[parent] = min(ranks[position], ranks[parent]) if parent in continued else ranks[position]
            continued.add(parent)
    return [leaf for _, leaf in ranks]


def _history(turns: Sequence[Turn], leaf: int, first_leaves: Sequence[int]) -> History:
    path = path_to(turns, leaf)
    trained = {turn for turn in path if turns[turn].untrained is None and first_leaves[turn] == leaf}
    return History(turns=path, messages=_messages(turns, path, trained))


def _is_tokens_only(turn: Turn) -> bool:
    """Whether nobody recorded what the completion says, but its tokens are known."""
    return bool(turn.token_ids) and turn.message is not None and turn.message.is_unknown


def _messages(turns: Sequence[Turn], path: Sequence[int], trained: set[int]) -> tuple[HistoryMessage, ...] | None:
    messages: list[HistoryMessage] = []
    for index, position in enumerate(path):
        turn = turns[position]
        context = turn.prompt.messages if index else prompt_messages(turn.prompt, turns)
        if context is None or turn.message is None or _is_tokens_only(turn):
            return None
        messages.extend([HistoryMessage(message=message) for message in context])
        messages.append(HistoryMessage(message=turn.message, turn=position, trained=position in trained))
    return tuple(messages)
