"""History: one message path from a root to a leaf, the shape in which conversations are trained.

Invariant: over all histories of a trajectory every completion to train is trained exactly once, in the first history
that holds it and whose messages are known. It is context in the others. A completion that must not be trained is
context in all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from art_otel.calls import InferenceCall, Message, ToolCall
from art_otel.trajectories.display import messages_html
from art_otel.trajectories.lineage import turns_by_completion
from art_otel.trajectories.messages import request_message
from art_otel.trajectories.model import AddedMessage, Trajectory, Turn
from art_otel.trajectories.prompt_paths import PromptPaths, message_link, path_to


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMessage:
    """A message of a history.

    `turn` is the position of the turn that sampled it and `completion_id` the id of the response that it came in, both
    None for what was given to the model. `trained` says whether this history is where it is trained.
    """

    message: Message
    turn: int | None = None
    completion_id: str | None = None
    trained: bool = False

    @property
    def role(self) -> str:
        """Who says it, as `system`, `user`, `assistant` or `tool`."""
        return self.message.role

    @property
    def content(self) -> str | None:
        """The message's text, None when it has none."""
        return self.message.content

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that it calls."""
        return self.message.tool_calls

    @property
    def tool_call_id(self) -> str | None:
        """The tool call that it answers."""
        return self.message.tool_call_id

    def to_openai(self) -> dict[str, Any]:
        """The message as openai's chat client sends one: a plain dict, without the reasoning."""
        return request_message(self.message)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class History(Sequence[HistoryMessage]):
    """A path of messages from a root turn to a leaf; a sequence of its messages, empty where they are unknown.

    `turns` are positions in the trajectory. `messages` are written as they were first sent or sampled; None where
    nobody recorded one of them: the root's prompt, or a completion of which only tokens are known. The last messages
    may be tool results that the app put behind the leaf.
    """

    turns: tuple[int, ...]
    messages: tuple[HistoryMessage, ...] | None

    def __len__(self) -> int:
        return len(self.messages or ())

    @overload
    def __getitem__(self, index: int) -> HistoryMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[HistoryMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> HistoryMessage | tuple[HistoryMessage, ...]:
        return (self.messages or ())[index]

    def __repr__(self) -> str:
        summary = "messages unknown" if self.messages is None else f"{len(self)} messages, {len(self.turns)} sampled"
        return f"<History {summary}>"

    def _repr_html_(self) -> str:
        return messages_html(self)

    def to_openai(self) -> list[Any]:
        """The messages as plain dicts, for `client.chat.completions.create(messages=…)`."""
        return [entry.to_openai() for entry in self]


def histories(trajectory: Trajectory) -> tuple[History, ...]:
    """Give the message histories: every message path from a root turn to a leaf, in the order of the leaves."""
    first_leaves = _first_leaves(trajectory.turns)
    return tuple(_history(trajectory, leaf, first_leaves) for leaf in leaves(trajectory.turns))


def history_of(
    calls: Sequence[InferenceCall],
    turns: Sequence[Turn],
    completion_id: str,
    choice: int = 0,
    added: Iterable[AddedMessage] = (),
) -> History | None:
    """The messages up to and with a completion, as its call had them, and what was put behind it.

    `trained` says of a sampled message that it is to be trained. None where there is no such completion, or its
    messages are unknown. Of several responses of one id it is the last.
    """
    position = turns_by_completion(calls, turns).get((completion_id, choice))
    prompt = None if position is None else calls[turns[position].call].input_messages
    sampled = None if position is None else turns[position].message
    if position is None or prompt is None or sampled is None:
        return None
    entries = [
        _entry(message, turn, calls, turns)
        for message, turn in zip((*prompt, sampled), _sampling_turns(turns, position), strict=True)
    ]
    behind = [HistoryMessage(message=one.message) for one in added if one.turn == position]
    return History(turns=path_to(turns, position), messages=(*entries, *behind))


def _sampling_turns(turns: Sequence[Turn], position: int) -> list[int | None]:
    """The turn that sampled each message of a turn's message path, None for what was given to the model."""
    path = [position]
    while (link := message_link(turns[path[-1]].prompt)) is not None:
        path.append(link)
    sampled_by: list[int | None] = []
    for turn in reversed(path):
        prompt = turns[turn].prompt
        sampled_by = [*sampled_by[: prompt.kept_messages], *[None] * len(prompt.messages or ()), turn]
    return sampled_by


def _entry(message: Message, turn: int | None, calls: Sequence[InferenceCall], turns: Sequence[Turn]) -> HistoryMessage:
    if turn is None:
        return HistoryMessage(message=message)
    return HistoryMessage(
        message=message,
        turn=turn,
        completion_id=calls[turns[turn].call].response_id,
        trained=turns[turn].untrained is None,
    )


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
    return None if leaf is None else _history(trajectory, leaf, _first_leaves(turns))


def _known_paths(turns: Sequence[Turn]) -> list[bool]:
    """Whether all messages of the path to each turn are known."""
    are_known: list[bool] = []
    for turn in turns:
        parent = turn.prompt.parent
        is_known = PromptPaths(turns).messages(turn.prompt) is not None if parent is None else are_known[parent]
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


def _history(trajectory: Trajectory, leaf: int, first_leaves: Sequence[int]) -> History:
    turns = trajectory.turns
    path = path_to(turns, leaf)
    trained = {turn for turn in path if turns[turn].untrained is None and first_leaves[turn] == leaf}
    messages = _messages(trajectory, path, trained)
    if messages is not None:
        behind = [one.message for one in trajectory.added_messages if one.turn == leaf]
        messages = (*messages, *[HistoryMessage(message=message) for message in behind])
    return History(turns=path, messages=messages)


def _is_tokens_only(turn: Turn) -> bool:
    """Whether nobody recorded what the completion says, but its tokens are known."""
    return bool(turn.token_ids) and turn.message is not None and turn.message.is_unknown


def _messages(trajectory: Trajectory, path: Sequence[int], trained: set[int]) -> tuple[HistoryMessage, ...] | None:
    turns = trajectory.turns
    messages: list[HistoryMessage] = []
    for index, position in enumerate(path):
        turn = turns[position]
        context = turn.prompt.messages if index else PromptPaths(turns).messages(turn.prompt)
        if context is None or turn.message is None or _is_tokens_only(turn):
            return None
        messages.extend([HistoryMessage(message=message) for message in context])
        entry = _entry(turn.message, position, trajectory.calls, turns)
        messages.append(replace(entry, trained=position in trained))
    return tuple(messages)
