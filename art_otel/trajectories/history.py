"""Histories: paths of messages, and paths of tokens, from a root to a leaf. Conversations are trained in this shape.

Invariant: message histories, and likewise token histories, train every completion that may be trained exactly once:
in the first history that has it. In later histories the completion is only context.

    user ── [turn 0] ── user ── [turn 1]       history 1 trains turns 0 and 1
                └────── tool ── [turn 2]       history 2 trains turn 2
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, overload

from art_otel.calls import Logprobs, Message, TokenIds, ToolCall
from art_otel.trajectories.display import messages_html
from art_otel.trajectories.json_views import request_message
from art_otel.trajectories.lineage import turns_by_completion
from art_otel.trajectories.model import Trajectory, Turn
from art_otel.trajectories.trees import MessageNode, path_to, runs_to


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
        """The role of the message: `system`, `user`, `assistant` or `tool`."""
        return self.message.role

    @property
    def content(self) -> str | None:
        """The text of the message; None if it has no text."""
        return self.message.content

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message."""
        return self.message.tool_calls

    @property
    def tool_call_id(self) -> str | None:
        """The id of the tool call that a tool message answers; None for other messages."""
        return self.message.tool_call_id

    def to_openai(self) -> dict[str, Any]:
        """The message as openai's chat client sends one: a plain dict, without the reasoning."""
        return request_message(self.message)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class History(Sequence[HistoryMessage]):
    """A path of messages from a root turn to a leaf. It is a sequence of its messages, and empty if they are unknown.

    `turns` are positions in `trajectory.turns`. `messages` have the words in which they were first sent or sampled, and
    are None if one of them was not recorded: the root's prompt, or a completion of which only tokens are known. The
    last messages may be tool results that the app added after the leaf.
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
    """Return the message histories: every message path from a root turn to a leaf, in the order of the leaves.

        for history in art_otel.histories(trajectory):
            labels = [entry.trained for entry in history]

    If the text of a leaf was not recorded, the path to the last turn with a known text is a history, too:

        user ── [turn 0] ── user ── [turn 1: only its token ids are known]

        turns 0      messages known, turn 0 is trained
        turns 0, 1   messages unknown
    """
    parents = [turn.parent for turn in trajectory.turns]
    are_known = _known_paths(trajectory, parents)
    first_ends = _first_ends(parents, are_known)
    continued = {*parents}
    ends = [turn for turn, end in enumerate(first_ends) if end == turn and (are_known[turn] or turn not in continued)]
    return tuple(_history(trajectory, end, first_ends) for end in ends)


def history_of(trajectory: Trajectory, completion_id: str, choice: int = 0) -> History | None:
    """The messages that a call had, its completion, and the messages that the app added after the completion.

    `trained` is True for each sampled message that may be trained. None if there is no such completion or its messages
    are unknown. If several responses have the id, the last one counts.
    """
    position = turns_by_completion(trajectory.calls).get((completion_id, choice))
    node = None if position is None else trajectory.turns[position].message_node
    if position is None or node is None or node.parent is None:
        return None
    turns = trajectory.turns
    entries = _entries(trajectory, path_to(node), lambda turn: turns[turn].text_untrained is None, as_sent=True)
    behind = [HistoryMessage(message=one.message) for one in trajectory.added_messages if one.turn == position]
    sampled = tuple(entry.turn for entry in entries if entry.turn is not None)
    return History(turns=sampled, messages=(*entries, *behind))


def main_history(trajectory: Trajectory, left_out: AbstractSet[int] | None = None) -> History | None:
    """The history with most turns of the policy; of equally long histories that of the latest call's first choice.

    `left_out` are turns that are not the policy's; None means the turns that are marked untrained. Turns of sub-agents
    do not count either (`delegated_turns`), so a long sub-agent does not win over a lead that crashed early. If no turn
    counts, every turn does. The history ends with a turn that counts, even if a judge continues it. Histories with
    known messages are preferred. None if nothing was sampled.
    """
    turns = trajectory.turns
    if len(turns) == 1:
        return _history(trajectory, 0, (0,))
    others = marked_turns(trajectory) if left_out is None else left_out
    every, delegated = set(range(len(turns))), delegated_turns(trajectory)
    counted = every - others - delegated or every - others or every - delegated or every
    parents = [turn.parent for turn in turns]
    are_known = _known_paths(trajectory, parents)
    depths: list[int] = []
    continued: set[int] = set()  # turns that a counted turn continues, with the messages of both known or both unknown
    for position, parent in enumerate(parents):
        depths.append((position in counted) + (0 if parent is None else depths[parent]))
    for position, parent in reversed([*enumerate(parents)]):
        goes_on = position in counted or position in continued
        if parent is not None and goes_on and are_known[position] == are_known[parent]:
            continued.add(parent)
    end = max(
        counted - continued,
        key=lambda end: (are_known[end], depths[end], turns[end].call, -turns[end].choice),
        default=None,
    )
    return None if end is None else _history(trajectory, end, _first_ends(parents, are_known))


def delegated_turns(trajectory: Trajectory) -> frozenset[int]:
    """The turns of sub-agents: agents whose first call came after another agent had asked for tools.

        lead       turn 0: calls delegate ──────── call fails
        explorer             turn 1 ── turn 2                  sub-agent

    An agent that was handed the conversation is no sub-agent: its prompt has the message that asked for tools.
    """
    if len({call.agent for call in trajectory.calls}) < 2:  # fast path: a single agent has no sub-agent
        return frozenset()
    calls = sorted(trajectory.calls, key=lambda call: call.start_ns)
    delegated: set[str | None] = set()
    asking: dict[str | None, list[tuple[int, Message]]] = {}
    for call in calls:
        if call.agent not in asking:
            others = [message for messages in asking.values() for end, message in messages if end <= call.start_ns]
            handed = {message.identity for message in call.input_messages or ()}
            if others and not any(message.identity in handed for message in others):
                delegated.add(call.agent)
        messages = [turn.message for turn in call.choices or () if turn.message is not None]
        end = call.start_ns if call.end_ns is None else call.end_ns
        asking.setdefault(call.agent, []).extend((end, message) for message in messages if message.tool_calls)
    return frozenset(at for at, turn in enumerate(trajectory.turns) if trajectory.calls[turn.call].agent in delegated)


def marked_turns(trajectory: Trajectory) -> frozenset[int]:
    """The turns of calls that are marked untrained, e.g. calls of a judge or a user simulator."""
    calls = trajectory.calls
    return frozenset(
        position for position, turn in enumerate(trajectory.turns) if calls[turn.call].marked_untrained is not None
    )


def _known_paths(trajectory: Trajectory, parents: Sequence[int | None]) -> list[bool]:
    """For each turn, whether all messages on the path to it are known. Shape: (turns,)."""
    are_known: list[bool] = []
    for turn, parent in zip(trajectory.turns, parents, strict=True):
        is_known = trajectory.calls[turn.call].prompt_node is not None if parent is None else are_known[parent]
        are_known.append(is_known and turn.message is not None and not _is_tokens_only(turn))
    return are_known


def _first_ends(parents: Sequence[int | None], are_known: Sequence[bool]) -> list[int]:
    """For each turn the leaf of the first history that has it, which trains it; a turn with unknown text ends its own.

    turn 0 ── turn 1        ends: 1, 1, 2; the history to turn 1 trains turns 0 and 1,
         └─── turn 2                       the history to turn 2 only turn 2
    """
    ends = [*range(len(parents))]
    for turn, parent in reversed([*enumerate(parents)]):
        if parent is not None and are_known[turn]:
            ends[parent] = ends[turn] if ends[parent] == parent else min(ends[turn], ends[parent])
    return ends


def _history(trajectory: Trajectory, end: int, first_ends: Sequence[int]) -> History:
    """The history that ends with a turn. It trains the turns for which it is the first history."""
    turns = trajectory.turns
    node = turns[end].message_node
    path = path_to(node)
    sampled = tuple(turn for each in path if (turn := each.first.turn) is not None) or (end,)
    messages: tuple[HistoryMessage, ...] | None = None
    is_known = bool(path) and path[0].parent is not None
    if is_known and not any(turns[turn].message is None or _is_tokens_only(turns[turn]) for turn in sampled):
        entries = _entries(
            trajectory,
            path,
            lambda turn: turns[turn].text_untrained is None and first_ends[turn] == first_ends[end],
        )
        behind = [HistoryMessage(message=one.message) for one in trajectory.added_messages if one.turn == end]
        messages = (*entries, *behind)
    return History(turns=sampled, messages=messages)


def _is_tokens_only(turn: Turn) -> bool:
    """Whether the tokens of a completion were recorded, but not its text."""
    return bool(turn.token_ids) and turn.message is not None and turn.message.is_unknown


def _entries(
    trajectory: Trajectory, path: Sequence[MessageNode], is_trained: Callable[[int], bool], *, as_sent: bool = False
) -> list[HistoryMessage]:
    """The messages of a path, in their first wording, or with `as_sent` in the wording of this path."""
    entries: list[HistoryMessage] = []
    for node in path:
        message, turn = node.message if as_sent else node.first.message, node.first.turn
        entries.append(
            HistoryMessage(message=message)
            if turn is None
            else HistoryMessage(
                message=message,
                turn=turn,
                completion_id=trajectory.calls[trajectory.turns[turn].call].response_id,
                trained=is_trained(turn),
            )
        )
    return entries


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionSpan:
    """The place of a completion in a token history: tokens `start` to `end` (exclusive), sampled by turn `turn`.

    `trained` says whether this history trains the completion; for a completion of zero tokens the loss mask cannot.
    `is_end_known` is False if a tokenizer made the ids and the model's stop token is unknown: the history then has no
    stop token there.
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
    and is trained in this history, otherwise 0. `logprobs` are the natural logarithms that the policy sampled with, 0.0
    for other tokens and for context without logprobs. If a trained completion has no logprobs, `logprobs` is None.
    `turns` are positions in `trajectory.turns`; `spans` has one entry for each of them.

        token_ids   1  2  3 11 12 13  4 21        turns 0 and 1
        loss_mask   0  0  0  1  1  1  0  1
    """

    token_ids: TokenIds
    loss_mask: bytes
    logprobs: Logprobs | None
    turns: tuple[int, ...]
    spans: tuple[CompletionSpan, ...]


def token_histories(trajectory: Trajectory) -> tuple[TokenHistory, ...]:
    """Return the token histories: every token path from a root turn to a leaf, in the order of the leaves.

    The time is linear in the tokens of all histories. Histories with a common context each contain this context.

        for history in art_otel.token_histories(trajectory):
            ids, mask = history.token_ids.tolist(), history.loss_mask
    """
    turns = trajectory.turns
    trained_before: set[int] = set()
    result: list[TokenHistory] = []
    for leaf in token_leaves(turns):
        history = _token_history(trajectory, leaf, trained_before)
        trained_before.update(span.turn for span in history.spans if span.trained)
        result.append(history)
    return tuple(result)


def token_leaves(turns: Sequence[Turn]) -> list[int]:
    """The positions of the turns with ids whose token path no other turn with ids continues."""
    continued = {turn.token_parent for turn in turns if turn.has_tokens}
    return [position for position, turn in enumerate(turns) if turn.has_tokens and position not in continued]


def _token_history(trajectory: Trajectory, leaf: int, trained_before: AbstractSet[int]) -> TokenHistory:
    """The token history that ends with a turn. It trains the turns on its path that no history before it trains."""
    turns = trajectory.turns
    ids: list[bytes] = []
    mask: list[bytes] = []
    logprobs: list[bytes] = []
    spans: list[CompletionSpan] = []
    has_logprobs = True
    end = 0
    for node, kept in runs_to(turns[leaf].token_node):
        start, end = end, end + len(kept) // 4
        is_trained, its_logprobs = False, bytes(len(kept))
        # A completion of which the path keeps only the beginning (drift) was not sampled like this: it is context.
        if node.turn is not None and node.ids is not None and len(node.ids.data) == len(kept):
            is_trained = turns[node.turn].tokens_untrained is None and node.turn not in trained_before
            spans.append(CompletionSpan(turn=node.turn, start=start, end=end, trained=is_trained))
            if node.logprobs is not None and len(node.logprobs.data) == len(kept):
                its_logprobs = node.logprobs.data
            elif is_trained and kept:
                has_logprobs = False
        ids.append(kept)
        mask.append((b"\1" if is_trained else b"\0") * (end - start))
        logprobs.append(its_logprobs)
    return TokenHistory(
        token_ids=TokenIds(b"".join(ids)),
        loss_mask=b"".join(mask),
        logprobs=Logprobs(b"".join(logprobs)) if has_logprobs else None,
        turns=tuple([span.turn for span in spans]),
        spans=tuple(spans),
    )
