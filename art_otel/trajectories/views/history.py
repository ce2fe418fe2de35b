"""History: one message path from a root to a leaf, the shape in which conversations are trained.

Invariant: over all histories of a trajectory every completion to train is trained exactly once: in the first history
that holds it, and it is context in the others. A completion that must not be trained is context everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from art_otel.calls import Message
from art_otel.trajectories.model import Trajectory, Turn
from art_otel.trajectories.views.paths import path_to, prompt_messages


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

    `messages` stand as they were first given or sampled; None where nobody recorded the root's prompt.
    """

    turns: tuple[int, ...]
    messages: tuple[HistoryMessage, ...] | None


def histories(trajectory: Trajectory) -> tuple[History, ...]:
    """Every message path from a root turn to a leaf, in the order of the leaves."""
    turns = trajectory.turns
    trained_before: set[int] = set()
    result: list[History] = []
    for leaf in leaves(turns):
        path = path_to(turns, leaf)
        trained = {turn for turn in path if turns[turn].untrained is None} - trained_before
        trained_before |= trained
        result.append(History(turns=path, messages=_messages(turns, path, trained)))
    return tuple(result)


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
    """The history with most turns; of equally long ones that to the latest call's first choice.

    Those with known messages go first. None where nothing was sampled.
    """
    return max(histories(trajectory), key=lambda one: _rank(trajectory.turns, one), default=None)


def _rank(turns: Sequence[Turn], history: History) -> tuple[bool, int, int, int]:
    leaf = turns[history.turns[-1]]
    return (history.messages is not None, len(history.turns), leaf.call, -leaf.choice)


def _messages(turns: Sequence[Turn], path: Sequence[int], trained: set[int]) -> tuple[HistoryMessage, ...] | None:
    messages: list[HistoryMessage] = []
    for index, position in enumerate(path):
        turn = turns[position]
        given = turn.prompt.messages if index else prompt_messages(turn.prompt, turns)
        if given is None or turn.message is None:
            return None
        messages.extend([HistoryMessage(message=message) for message in given])
        messages.append(HistoryMessage(message=turn.message, turn=position, trained=position in trained))
    return tuple(messages)
