"""Prompt parents: which completion each prompt continues, once by messages and once by token ids.

    call 0   [user]                        -> "a"
    call 1   [user, "a", user]             -> "b"        continues call 0
    call 2   [user, "a", user, "b", tool]  -> "c"        continues call 1, whose path is longer than call 0's
    call 3   [user, "a", user]             -> "d"        continues call 0

The path of a completion is its prompt and its answer. The *message parent* of a prompt is the completion with the
longest message path that the prompt begins with (compared by `Message.identity`); the order of calls does not matter.
The *token parent* is the turn of an earlier call with the longest token path that the prompt's ids begin with; of
equal paths it is the message parent, else the latest turn.

Invariant: message parents form no cycle, because the path of a parent is shorter than the path of its continuation.

`with_answer_ids` and `with_joined_pieces` first undo two ways in which recorders and clients rewrite an answer.
"""

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall, Message
from art_otel.conventions import is_gemini, join_messages

CompletionRef: TypeAlias = tuple[int, int]
"""The position of a call, and the position of a choice in this call."""

_MOST_COMPARED: Final = 16
"""How many completions with equal paths are compared before a call, and as many after it: more would be quadratic."""


class MessageParent(NamedTuple):
    """The completion that a prompt continues. `verbatim`: the prompt certainly repeats the path word for word."""

    completion: CompletionRef
    verbatim: bool = False


def find_message_parents(calls: Sequence[InferenceCall], numbers: "PrefixNumbers | None") -> list[MessageParent | None]:
    """Find the message parent of each call; None for a prompt that continues no completion. Linear in the messages.

    `numbers` are the prefix numbers of the rollout, None for a chain of calls (`is_chain`). Equal prefixes have one
    number, so one look-up finds all completions whose path is this prefix of a prompt.
    """
    if numbers is None:
        return [None, *(MessageParent((index, 0), verbatim=True) for index in range(len(calls) - 1))][: len(calls)]
    prefixes = [numbers.of(call.input_messages or ()) for call in calls]
    completions: dict[int, list[CompletionRef]] = {}
    for index, call in enumerate(calls):
        if call.input_messages is not None:
            for position, choice in enumerate(call.choices or ()):
                path = numbers.longer(prefixes[index][-1], choice.message)
                completions.setdefault(path, []).append((index, position))
    parents: list[MessageParent | None] = []
    for index, its_prefixes in enumerate(prefixes):
        equal = next((completions[prefix] for prefix in reversed(its_prefixes) if prefix in completions), None)
        parents.append(None if equal is None else MessageParent(_preferred(equal, calls, index)))
    return parents


def _preferred(equal: Sequence[CompletionRef], calls: Sequence[InferenceCall], index: int) -> CompletionRef:
    """Choose among completions with equal paths, given in the order of their calls, the one that a prompt continues.

    The first of these that tells them apart decides: the response that the call names, the token path, the same
    reasoning, the same agent, the latest call before this one, the latest call.
    """
    if len(equal) == 1:
        return equal[0]
    call, place = calls[index], bisect_left(equal, (index, 0))
    repeated = (call.input_messages or ())[len(calls[equal[0][0]].input_messages or ())]

    def fit(completion: CompletionRef) -> tuple[bool, bool, bool, bool, bool, int, int]:
        number, position = completion
        other = calls[number]
        return (
            call.previous_response_id is not None and call.previous_response_id == other.response_id,
            continues_tokens(call, other, position),
            repeated.reasoning == choice_at(other, position).message.reasoning,
            call.agent == other.agent,
            number < index,
            number,
            -position,
        )

    return max(equal[max(0, place - _MOST_COMPARED) : place + _MOST_COMPARED], key=fit)


def causal_order(parents: Sequence[MessageParent | None]) -> list[int]:
    """The positions of the calls, ordered by start, but each call after its message parent. Shape: (calls,)."""
    if all(match is None or match.completion[0] < index for index, match in enumerate(parents)):
        return list(range(len(parents)))
    children: dict[int, list[int]] = {}
    ready: list[int] = []
    for index, match in enumerate(parents):
        if match is None:
            ready.append(index)
        else:
            children.setdefault(match.completion[0], []).append(index)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for child in children.get(index, ()):
            heapq.heappush(ready, child)
    return order


def is_chain(calls: Sequence[InferenceCall]) -> bool:
    """Whether each call continues the call before it word for word, as in most rollouts."""
    for before, call in pairwise(calls):
        path, prompt = before.input_messages, call.input_messages
        if path is None or prompt is None or before.choices is None or len(before.choices) != 1:
            return False
        count = len(path)
        if not (len(prompt) > count and prompt[count] == before.choices[0].message and prompt[:count] == path):
            return False
    return True


def choice_at(call: InferenceCall, position: int) -> Choice:
    """The choice at a position of a call. Raises IndexError if the call has no such choice."""
    return (call.choices or ())[position]


def continues_tokens(continuing: InferenceCall, call: InferenceCall, position: int) -> bool:
    """Whether the ids of a prompt begin with the token path of a completion; False if any of the ids are unknown."""
    prompt, before, sampled = continuing.prompt_token_ids, call.prompt_token_ids, choice_at(call, position).token_ids
    if prompt is None or before is None or sampled is None:
        return False
    return prompt.startswith(before) and prompt.startswith(sampled, len(before))


def with_answer_ids(calls: Sequence[InferenceCall], numbers: "PrefixNumbers") -> Sequence[InferenceCall]:
    """Give sampled tool calls without an id the id that a later prompt repeats them with.

    Some instrumentors lose the ids of streamed tool calls. Then no prompt would seem to continue the answer:

        [user] -> calls look          [user, calls look as c1, tool c1: …] -> …
    """
    asked = {numbers.of(call.input_messages or ())[-1] for call in calls if _lacks_ids(call)}
    if not asked:
        return calls
    repeats: dict[tuple[int, object], Message] = {}
    for call in calls:
        prompt = call.input_messages or ()
        for message, prefix in zip(prompt, numbers.of(prompt), strict=False):
            if prefix in asked and message.role == "assistant" and message.tool_calls:
                repeats.setdefault((prefix, _without_ids(message)), message)
    result: list[InferenceCall] = []
    for call in calls:
        choices: list[Choice] = []
        for choice in call.choices or () if _lacks_ids(call) else ():
            message = choice.message
            repeat = repeats.get((numbers.of(call.input_messages or ())[-1], _without_ids(message)))
            if repeat is not None:
                pairs = zip(message.tool_calls, repeat.tool_calls, strict=True)
                with_ids = tuple(
                    one if one.id is not None else msgspec.structs.replace(one, id=of.id) for one, of in pairs
                )
                message = msgspec.structs.replace(message, tool_calls=with_ids)
            choices.append(msgspec.structs.replace(choice, message=message))
        result.append(msgspec.structs.replace(call, choices=tuple(choices)) if choices else call)
    return result


def _lacks_ids(call: InferenceCall) -> bool:
    if call.input_messages is None or not call.choices:
        return False
    for choice in call.choices:
        for called in choice.message.tool_calls:  # any() costs twice as much, and this is asked of every call
            if called.id is None:
                return True
    return False


def _without_ids(message: Message) -> object:
    calls = tuple(msgspec.structs.replace(call, id=None) for call in message.tool_calls)
    return msgspec.structs.replace(message, tool_calls=calls).identity


def with_joined_pieces(calls: Sequence[InferenceCall]) -> Sequence[InferenceCall]:
    """Join the pieces of an earlier answer in the prompts of Gemini.

    google-genai sends the answer of a stream back in the pieces in which it came:

        [user] -> "Hello"             [user, "Hel", "lo", user] -> …

    Only pieces that together are a recorded answer, at its place in the prompt, are joined.
    """
    answers: set[tuple[int, tuple[object, ...]]] = set()
    joined = [*calls]
    for index, call in enumerate(calls):
        prompt = call.input_messages
        if prompt is None or not is_gemini(call.provider, call.operation_name):
            continue
        if any(one.role == other.role == "assistant" for one, other in pairwise(prompt)):
            whole: list[Message] = []
            for role, neighbors in groupby(prompt, key=lambda message: message.role):
                pieces = [*neighbors]
                if role == "assistant" and len(pieces) > 1 and all(piece.parts is None for piece in pieces):
                    answer = join_messages(pieces)
                    pieces = [answer] if (len(whole), answer.identity) in answers else pieces
                whole += pieces
            prompt = tuple(whole)
            joined[index] = msgspec.structs.replace(call, input_messages=prompt)
        answers.update((len(prompt), choice.message.identity) for choice in call.choices or ())
    return joined


_RECENT_PROMPTS: Final = 8
"""How many recent prompts a new prompt is compared with: more than one, because sub-agents and parallel calls
alternate."""


class PrefixNumbers(msgspec.Struct):
    """Numbers for the prefixes of a rollout's prompts. The empty prefix has 0.

        [user]  -> 1        [user, "a"]  -> 2        [user, "b"]  -> 3        [user, "a", user]  -> 4

    Invariant: two prefixes have one number if and only if their messages have the same identities in the same order.
    """

    message_numbers: dict[tuple[object, ...], int] = msgspec.field(default_factory=dict[tuple[object, ...], int])
    seen_messages: dict[int, tuple[Message, int]] = msgspec.field(default_factory=dict[int, tuple[Message, int]])
    seen_prompts: dict[int, tuple[tuple[Message, ...], list[int]]] = msgspec.field(
        default_factory=dict[int, tuple[tuple[Message, ...], list[int]]]
    )
    longer_prefixes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict[tuple[int, int], int])
    recent: list[tuple[tuple[Message, ...], list[int]]] = msgspec.field(
        default_factory=list[tuple[tuple[Message, ...], list[int]]]
    )

    def longer(self, prefix: int, message: Message) -> int:
        """The number of a prefix with one more message."""
        seen = self.seen_messages.get(id(message))
        if seen is None:  # `identity` is slow to compute, so each message object is asked for it once
            seen = (message, self.message_numbers.setdefault(message.identity, len(self.message_numbers) + 1))
            self.seen_messages[id(message)] = seen
        return self.longer_prefixes.setdefault((prefix, seen[1]), len(self.longer_prefixes) + 1)

    def of(self, prompt: tuple[Message, ...]) -> list[int]:
        """The number of every prefix of the prompt, the empty one first. Shape: (messages + 1,)."""
        seen = self.seen_prompts.get(id(prompt))
        if seen is not None:
            return seen[1]
        shared: tuple[Message, ...] = ()
        numbers = [0]
        for earlier, its_numbers in self.recent:
            if len(earlier) > len(shared) and prompt[: len(earlier)] == earlier:
                shared, numbers = earlier, its_numbers
        numbers = numbers.copy()
        for message in prompt[len(shared) :]:
            numbers.append(self.longer(numbers[-1], message))
        # The prompt is kept beside its numbers so that its id() cannot be given to another one.
        self.seen_prompts[id(prompt)] = prompt, numbers
        self.recent = [(prompt, numbers), *self.recent[: _RECENT_PROMPTS - 1]]
        return numbers


# Token parents: all paths are in one radix tree, so a walk down the tree compares a prompt with all of them at once.

_WIDTH = 4  # bytes of an id


class _Node(msgspec.Struct):
    """A node of the radix tree: the ids on the edge from its parent, and the latest turn whose path ends here."""

    edge: bytes = b""
    turn: int | None = None
    children: "dict[bytes, _Node]" = msgspec.field(default_factory=dict[bytes, "_Node"])


def find_token_parents(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> list[int | None]:
    """Find the token parent of each call, as the position of a turn; None if no path fits or the ids are unknown.

    `calls` are in causal order, and the turns of all calls are numbered in this order. `parents` are the message
    parents of the calls, also as positions of turns.
    """
    if all(call.prompt_token_ids is None for call in calls):
        return [None] * len(calls)
    if (
        all(len(call.choices or ()) == 1 for call in calls)
        and [*parents] == [None, *range(len(calls) - 1)]
        and calls[0].prompt_token_ids is not None
        and all(continues_tokens(call, before, 0) for before, call in pairwise(calls))
    ):  # A plain conversation needs no tree: each call continues the one before it, and no other path is longer.
        return list(parents)
    root = _Node()
    token_parents: list[int | None] = []
    ends: list[tuple[_Node, int] | None] = []  # for each turn the node where its path ends, and the path's bytes
    completions: list[tuple[InferenceCall, int]] = []
    for call, parent in zip(calls, parents, strict=True):
        prompt = None if call.prompt_token_ids is None else call.prompt_token_ids.data
        node, size, longest = root, 0, None
        if parent is not None and (end := ends[parent]) is not None and continues_tokens(call, *completions[parent]):
            (node, size), longest = end, parent  # a longer path can only go on from there
        if prompt is None:
            token_parents.append(None)
        else:
            below, at = node, size
            while (child := below.children.get(prompt[at : at + _WIDTH])) and prompt.startswith(child.edge, at):
                below, at = child, at + len(child.edge)
                longest = longest if below.turn is None else below.turn
            token_parents.append(longest)
            node = _insert(node, prompt[size:])
        for position, choice in enumerate(call.choices or ()):
            sampled, turn = choice.token_ids, len(completions)
            if prompt is None or sampled is None:
                ends.append(None)
            else:
                last = _insert(node, sampled.data) if sampled else node
                if sampled:  # the path of an empty completion is only its prompt, which other calls may share
                    last.turn = turn
                ends.append((last, len(prompt) + len(sampled.data)))
            completions.append((call, position))
    return token_parents


def _insert(node: _Node, path: bytes) -> _Node:
    """Find the node at the end of a path below `node`, or insert it."""
    end = 0
    while end < len(path):
        first = path[end : end + _WIDTH]
        child = node.children.get(first)
        if child is None:
            child = node.children[first] = _Node(path[end:])
        elif not path.startswith(child.edge, end):  # a new node in the middle of the edge
            size = shared_prefix(child.edge, path[end : end + len(child.edge)])
            between = _Node(child.edge[:size])
            child.edge = child.edge[size:]
            between.children[child.edge[:_WIDTH]] = child
            child = node.children[first] = between
        node, end = child, end + len(child.edge)
    return node


def shared_prefix(one: bytes, other: bytes) -> int:
    """How many bytes both begin with, counting whole ids of 4 bytes only."""
    size = min(len(one), len(other))
    # Comparing two large integers is much faster than a loop: their lowest different bit is in the first different id.
    differing = int.from_bytes(one[:size], "little") ^ int.from_bytes(other[:size], "little")
    return ((differing & -differing).bit_length() - 1) // 32 * _WIDTH if differing else size
