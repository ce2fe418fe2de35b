"""Histories: paths of messages and of tokens from a root to a leaf, the shapes in which conversations are trained.

Invariant of messages: over all histories of a trajectory every completion to train is trained exactly once, in the
first history that holds it and whose messages are known. It is context in the others. A completion that must not be
trained is context in all of them.

Invariant of tokens: token for token they are what the policy saw and sampled. Ids, loss mask and logprobs have one
length; the ids under the mask are the completions that are trained here, in order; what is before a completion is what
the server saw. Every completion to train that has ids is trained exactly once: in the first token history that holds
it.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

from art_otel.calls import InferenceCall, Logprobs, Message, TokenIds, ToolCall
from art_otel.trajectories.display import messages_html
from art_otel.trajectories.json_views import request_message
from art_otel.trajectories.lineage import turns_by_completion
from art_otel.trajectories.model import AddedMessage, Prompt, Trajectory, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMessage:
    """A message of a history.

    `turn` is the position of the turn that sampled it, and `completion_id` is the id of its response. Both are None for
    a message that was not sampled. `trained` says whether the message is trained in this history.
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
        """The tool calls of the message."""
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
    """A path of messages from a root turn to a leaf. It is a sequence of its messages, and empty if they are unknown.

    `turns` are positions in the trajectory. `messages` are as they were first sent or sampled. They are None if one of
    them was not recorded: the root's prompt, or a completion of which only tokens are known. The last messages may be
    tool results that the app added after the leaf.
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
    """Return the message histories: every message path from a root turn to a leaf, in the order of the leaves."""
    first_leaves = _first_leaves(trajectory.turns, _known_paths(trajectory.turns))
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
        trained=turns[turn].text_untrained is None,
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


def main_history(trajectory: Trajectory, left_out: AbstractSet[int] | None = None) -> History | None:
    """The history with most turns of the policy; of equally long ones that of the latest call's first choice.

    `left_out` are the turns that are not the policy's; None stands for those that are marked untrained. The history
    ends with a turn of the policy, also where a judge's goes on. Where no turn is the policy's, every turn counts.
    Histories with known messages are preferred. None where nothing was sampled.
    """
    turns = trajectory.turns
    others = marked_turns(trajectory) if left_out is None else left_out
    counted = set(range(len(turns))) - others or set(range(len(turns)))
    depths: list[int] = []
    continued: set[int] = set()  # turns with a counted one somewhere behind them
    for position, turn in enumerate(turns):
        parent = turn.prompt.parent
        depths.append((position in counted) + (0 if parent is None else depths[parent]))
    for position in reversed(range(len(turns))):
        parent = turns[position].prompt.parent
        if parent is not None and (position in counted or position in continued):
            continued.add(parent)
    are_known = _known_paths(turns)
    end = max(
        counted - continued,
        key=lambda end: (are_known[end], depths[end], turns[end].call, -turns[end].choice),
        default=None,
    )
    return None if end is None else _history(trajectory, end, _first_leaves(turns, are_known))


def marked_turns(trajectory: Trajectory) -> frozenset[int]:
    """The turns of calls that are marked untrained, such as those of a judge or a user simulator."""
    calls = trajectory.calls
    return frozenset(
        position for position, turn in enumerate(trajectory.turns) if calls[turn.call].marked_untrained is not None
    )


def _known_paths(turns: Sequence[Turn]) -> list[bool]:
    """Whether all messages of the path to each turn are known."""
    are_known: list[bool] = []
    for turn in turns:
        parent = turn.prompt.parent
        is_known = PromptPaths(turns).messages(turn.prompt) is not None if parent is None else are_known[parent]
        are_known.append(is_known and turn.message is not None and not _is_tokens_only(turn))
    return are_known


def _first_leaves(turns: Sequence[Turn], are_known: Sequence[bool]) -> list[int]:
    """The first leaf of the paths through each turn, of those that are known if any is.

    The turn is trained in the history that leads to it.
    """
    ranks = [(not is_known, position) for position, is_known in enumerate(are_known)]
    continued: set[int] = set()
    for position in reversed(range(len(turns))):
        parent = turns[position].prompt.parent
        if parent is not None:
            ranks[parent] = min(ranks[position], ranks[parent]) if parent in continued else ranks[position]
            continued.add(parent)
    return [leaf for _, leaf in ranks]


def _history(trajectory: Trajectory, end: int, first_leaves: Sequence[int]) -> History:
    """The path to a turn. It trains what the first history with that turn does."""
    turns = trajectory.turns
    path = path_to(turns, end)
    trained = {turn for turn in path if turns[turn].text_untrained is None and first_leaves[turn] == first_leaves[end]}
    messages = _messages(trajectory, path, trained)
    if messages is not None:
        behind = [one.message for one in trajectory.added_messages if one.turn == end]
        messages = (*messages, *[HistoryMessage(message=message) for message in behind])
    return History(turns=path, messages=messages)


def _is_tokens_only(turn: Turn) -> bool:
    """Whether no recorder kept what the completion says, but its tokens are known."""
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
        completion_id = trajectory.calls[turn.call].response_id
        messages.append(
            HistoryMessage(
                message=turn.message, turn=position, completion_id=completion_id, trained=position in trained
            )
        )
    return tuple(messages)


_WIDTH = 4  # bytes of an id


class RebuiltPrompt(NamedTuple):
    """The messages and the token ids before a completion, each None when unknown."""

    messages: tuple[Message, ...] | None = None
    token_ids: TokenIds | None = None


def rebuild_prompts(prompts: Sequence[Prompt], turns: Sequence[Turn]) -> tuple[RebuiltPrompt, ...]:
    """The prompt of each call. Raises ValueError for links that lead nowhere.

    Each prompt follows from the turns before it, so one pass over the calls rebuilds all of them. Time and memory are
    those of the prompts themselves, whose messages are shared.
    """
    rebuilt: list[RebuiltPrompt] = []
    paths = PromptPaths(turns, rebuilt)
    for position, prompt in enumerate(prompts):
        for link in (prompt.parent, prompt.token_parent):
            if link is not None and not (0 <= link < len(turns) and turns[link].call < position):
                raise ValueError(f"the prompt of call {position} continues turn {link}, which is of no earlier call")
        rebuilt.append(RebuiltPrompt(paths.messages(prompt), paths.token_ids(prompt)))
    return tuple(rebuilt)


def path_to(
    turns: Sequence[Turn], leaf: int, link: Callable[[Turn], int | None] = lambda turn: turn.parent
) -> tuple[int, ...]:
    """The positions of the turns from the root to `leaf`, along one kind of link."""
    path = [leaf]
    while (parent := link(turns[path[-1]])) is not None:
        path.append(parent)
    return tuple(reversed(path))


def message_link(prompt: Prompt) -> int | None:
    """The turn whose messages the prompt keeps; None where it keeps none."""
    if prompt.messages is None or not prompt.kept_messages:
        return None
    link = prompt.token_parent if prompt.parent is None else prompt.parent
    if link is None:
        raise ValueError(f"a prompt keeps {prompt.kept_messages} messages and continues no turn")
    return link


class PromptPaths:
    """The messages and token ids of single prompts. Each takes time linear in what is before it.

    `rebuilt` are the prompts of the first calls, as far as they are known: those before need not be walked again.
    """

    def __init__(self, turns: Sequence[Turn], rebuilt: Sequence[RebuiltPrompt] = ()) -> None:
        self._turns = turns
        self._rebuilt = rebuilt

    def messages(self, prompt: Prompt) -> tuple[Message, ...] | None:
        """The messages of a prompt, None where no recorder kept them."""
        first, steps = self._walk(prompt, message_link)
        if first.messages is None or not steps:
            return first.messages
        messages = list(first.messages)
        for turn, later in steps:
            if turn.message is not None:
                messages.append(turn.message)
            if len(messages) < later.kept_messages:
                raise ValueError(f"a prompt keeps {later.kept_messages} messages of a path that has {len(messages)}")
            del messages[later.kept_messages :]
            for edit in later.edits:
                if not 0 <= edit.index < len(messages):
                    raise ValueError(f"an edit of message {edit.index}, of {len(messages)} that are kept")
                messages[edit.index] = edit.message
            messages += later.messages or ()
        return tuple(messages)

    def token_ids(self, prompt: Prompt) -> TokenIds | None:
        """The token ids of a prompt, None where the server gave none."""
        first, steps = self._walk(prompt, self._token_link)
        if first.token_ids is None or not steps:
            return first.token_ids
        ids = bytearray(first.token_ids.data)
        for turn, later in steps:
            ids += b"" if turn.token_ids is None else turn.token_ids.data
            del ids[_WIDTH * later.kept_tokens :]
            ids += b"" if later.context_token_ids is None else later.context_token_ids.data
        return TokenIds(bytes(ids))

    def context(self, prompt: Prompt) -> bytes:
        """The ids of a prompt behind the path of its token parent, 4 bytes each; without one, the whole prompt's."""
        before = 0 if prompt.token_parent is None else self._known_ids(prompt.token_parent)
        if prompt.kept_tokens == before and prompt.context_token_ids is not None:
            return prompt.context_token_ids.data
        ids = self.token_ids(prompt)
        return b"" if ids is None else ids.data[_WIDTH * before :]

    def _walk(
        self, prompt: Prompt, link_of: Callable[[Prompt], int | None]
    ) -> tuple[RebuiltPrompt, list[tuple[Turn, Prompt]]]:
        """The first prompt that a prompt goes back to, and the prompts from there, each with the turn that it keeps."""
        steps: list[tuple[Turn, Prompt]] = []
        while (link := link_of(prompt)) is not None:
            turn = self._turns[link]
            steps.append((turn, prompt))
            prompt = turn.prompt
            if turn.call < len(self._rebuilt):
                return self._rebuilt[turn.call], steps[::-1]
        return RebuiltPrompt(prompt.messages, prompt.context_token_ids), steps[::-1]

    def _token_link(self, prompt: Prompt) -> int | None:
        """The turn whose path has the ids that the prompt keeps; None where it keeps none."""
        if prompt.context_token_ids is None or not prompt.kept_tokens:
            return None
        for link in (prompt.token_parent, prompt.parent):
            if link is not None and self._known_ids(link) >= prompt.kept_tokens:
                return link
        raise ValueError(f"a prompt keeps {prompt.kept_tokens} ids of paths that have fewer")

    def _known_ids(self, position: int) -> int:
        """How many ids of a turn's path are known from the start: those of its prompt, and of its completion."""
        turn = self._turns[position]
        context = turn.prompt.context_token_ids
        if context is None:
            return 0
        return turn.prompt.kept_tokens + len(context) + (0 if turn.token_ids is None else len(turn.token_ids))


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionSpan:
    """Where a completion is in its history: tokens `start` to `end` (exclusive), sampled by turn `turn`.

    `trained` says whether this history is where it is trained; a completion of zero tokens shows that here only.
    `is_end_known` is False for one without ids of the server's of which nothing shows the stop token: it has none here.
    """

    turn: int
    start: int
    end: int
    trained: bool
    is_end_known: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenHistory:
    """The tokens of a path through turns whose prompt and completion have ids.

    `token_ids`, `loss_mask` and `logprobs` have shape (tokens,). A byte of `loss_mask` is 1 if the token was sampled
    and is trained in this history, otherwise 0. `logprobs` are the policy's when it sampled. They are 0.0 where nothing
    was sampled, and in a completion without logprobs that is only context here. If a trained completion has no
    logprobs, `logprobs` is None. `turns` are positions in the trajectory; `spans` has one entry for each of them.
    """

    token_ids: TokenIds
    loss_mask: bytes
    logprobs: Logprobs | None
    turns: tuple[int, ...]
    spans: tuple[CompletionSpan, ...]


def token_histories(trajectory: Trajectory) -> tuple[TokenHistory, ...]:
    """Return the token histories: every token path from a root turn to a leaf, in the order of the leaves.

    This needs only turns and prompts, so you may read the trajectory with `prompts=False`. The time is linear in the
    tokens of the histories. If several histories have a common context, each contains it.
    """
    turns = trajectory.turns
    paths = PromptPaths(turns)
    trained_before: set[int] = set()
    result: list[TokenHistory] = []
    for leaf in token_leaves(turns):
        path = path_to(turns, leaf, lambda turn: turn.token_parent)
        trained = {turn for turn in path if turns[turn].tokens_untrained is None} - trained_before
        trained_before |= trained
        result.append(_token_history(turns, path, paths, trained))
    return tuple(result)


def token_leaves(turns: Sequence[Turn]) -> list[int]:
    """The turns with ids whose token path no other turn with ids continues."""
    continued = {turn.prompt.token_parent for turn in turns if turn.has_tokens}
    return [position for position, turn in enumerate(turns) if turn.has_tokens and position not in continued]


def _token_history(turns: Sequence[Turn], path: Sequence[int], paths: PromptPaths, trained: set[int]) -> TokenHistory:
    ids: list[bytes] = []
    mask: list[bytes] = []
    logprobs: list[bytes] = []
    spans: list[CompletionSpan] = []
    is_known = True
    end = 0
    for position in path:
        turn, is_trained = turns[position], position in trained
        context = paths.context(turn.prompt)
        sampled = b"" if turn.token_ids is None else turn.token_ids.data
        its_logprobs = None if turn.logprobs is None else turn.logprobs.data
        start = end + len(context) // 4
        end = start + len(sampled) // 4
        if its_logprobs is None or len(its_logprobs) != len(sampled):
            is_known = is_known and not (is_trained and sampled)
            its_logprobs = bytes(len(sampled))
        ids += (context, sampled)
        mask += (bytes(len(context) // 4), (b"\1" if is_trained else b"\0") * (end - start))
        logprobs += (bytes(len(context)), its_logprobs)
        spans.append(CompletionSpan(turn=position, start=start, end=end, trained=is_trained))
    return TokenHistory(
        token_ids=TokenIds(b"".join(ids)),
        loss_mask=b"".join(mask),
        logprobs=Logprobs(b"".join(logprobs)) if is_known else None,
        turns=tuple(path),
        spans=tuple(spans),
    )
