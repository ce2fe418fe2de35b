"""Prompt parents: what each prompt continues, by its messages and by its token ids.

Invariant by messages: a call's parent is the completion with the longest message path that the call's prompt begins
with, whatever the order of the calls and whatever their token ids say. Messages are compared by `Message.identity`. A
path is shorter than the path of its continuation, so parents never form a cycle.

Equal prefixes have one number (`PrefixNumbers`), so one look-up finds all completions whose path is a prefix of a
prompt. Where each call continues the one before it, nothing needs to be looked up.

Streams lose the ids of sampled tool calls under some instrumentors, and then no prompt would seem to continue the
answer: `with_answer_ids` takes them from a prompt that is the call's own prompt and then the same answer.

google-genai sends the answer of a stream back in the pieces that it came in, each a content of the model's:
`with_joined_pieces` makes them the answer again.

Invariant by token ids: a call's token parent is the turn of an earlier call with the longest token path that the call's
prompt ids begin with. Of equal paths it is the message parent's, else the latest. A completion without tokens shows
nothing, so it counts only as the message parent. Calls without prompt ids have none.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, pairwise, product
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, TokenIds, ToolCall
from art_otel.conventions import is_gemini, join_messages

CompletionRef: TypeAlias = tuple[int, int]
"""The position of a call, and the position of a choice in it."""


class MessageParent(NamedTuple):
    """The completion that a prompt continues. `verbatim`: the prompt is known to repeat its path word for word."""

    completion: CompletionRef
    verbatim: bool = False


def find_message_parents(calls: Sequence[InferenceCall], numbers: "PrefixNumbers | None") -> list[MessageParent | None]:
    """The message parent of each call; None for a prompt that continues no other call. Linear in the messages.

    `numbers` are those of the rollout's prompts, None for a chain of calls.
    """
    if numbers is None:
        return [None, *(MessageParent((index, 0), verbatim=True) for index in range(len(calls) - 1))][: len(calls)]
    return _look_up_parents(calls, numbers)


def is_chain(calls: Sequence[InferenceCall]) -> bool:
    """Whether each call continues the one before it, in the same words, as in most rollouts."""
    return all(_goes_on(before, call) for before, call in pairwise(calls))


def _goes_on(before: InferenceCall, call: InferenceCall) -> bool:
    """Whether the prompt is the one before and its only completion, in the same words, with or without more."""
    path, prompt = before.input_messages, call.input_messages
    if path is None or prompt is None or before.choices is None or len(before.choices) != 1:
        return False
    count = len(path)
    return len(prompt) > count and prompt[count] == before.choices[0].message and prompt[:count] == path


def _look_up_parents(calls: Sequence[InferenceCall], numbers: "PrefixNumbers") -> list[MessageParent | None]:
    prefixes = [numbers.of(call.input_messages or ()) for call in calls]
    completions: dict[int, _EqualPaths] = {}
    for index, call in enumerate(calls):
        if call.input_messages is not None:
            for position, choice in enumerate(call.choices or ()):
                path = numbers.longer(prefixes[index][-1], choice.message)
                completions.setdefault(path, _EqualPaths(calls)).add((index, position))
    return [_longest_match(index, prefixes[index], completions) for index in range(len(calls))]


def _longest_match(
    index: int, prefixes: Sequence[int], completions: Mapping[int, "_EqualPaths"]
) -> MessageParent | None:
    for prefix in reversed(prefixes):
        matches = completions.get(prefix)
        if matches is not None:
            return MessageParent(matches.preferred(index))
    return None


class _EqualPaths:
    """The completions of one message path, in the order of their calls.

    A prompt continues the one of the response that it names; else one whose token path it continues too; else one with
    the same reasoning; else one of the same agent; of these the latest before it, else the latest. Each look-up is a
    search, because a rollout may sample one text thousands of times.
    """

    def __init__(self, calls: Sequence[InferenceCall]) -> None:
        self._calls = calls
        self._completions: list[CompletionRef] = []
        self._by_facts: dict[tuple[object, ...], list[CompletionRef]] = {}
        self._token_lengths: list[int] = []

    def add(self, completion: CompletionRef) -> None:
        """Add a completion, which comes behind those before it."""
        self._completions.append(completion)

    def preferred(self, index: int) -> CompletionRef:
        """The completion that the prompt of a call continues."""
        if len(self._completions) == 1:
            return self._completions[0]
        if not self._by_facts:
            self._index()
        call = self._calls[index]
        path_length = len(self._calls[self._completions[0][0]].input_messages or ())
        repeated = (call.input_messages or ())[path_length]
        responses = (_ANY,) if call.previous_response_id is None else (call.previous_response_id, _ANY)
        for response, paths, reasoning, agent in product(
            responses, (self._token_paths(call), (_ANY,)), (repeated.reasoning, _ANY), (call.agent, _ANY)
        ):
            groups = [self._by_facts.get((response, path, reasoning, agent)) for path in paths]
            latest = [_latest(group, index) for group in groups if group is not None]
            if latest:
                return max(latest, key=lambda one: (one[0] < index, one[0], -one[1]))
        return self._completions[-1]

    def _index(self) -> None:
        """Note each completion under everything by which it may be looked up."""
        lengths: set[int] = set()
        for one in self._completions:
            call, choice = self._calls[one[0]], choice_at(self._calls[one[0]], one[1])
            path: object = _ANY
            if call.prompt_token_ids is not None and choice.token_ids is not None:
                path = call.prompt_token_ids.data + choice.token_ids.data
                lengths.add(len(call.prompt_token_ids.data) + len(choice.token_ids.data))
            facts = (call.response_id, path, choice.message.reasoning, call.agent)
            for key in set(product(*((fact, _ANY) for fact in facts))):
                self._by_facts.setdefault(key, []).append(one)
        self._token_lengths = sorted(lengths)

    def _token_paths(self, call: InferenceCall) -> list[bytes]:
        """The beginnings of a prompt's ids that may be token paths of these completions."""
        ids = b"" if call.prompt_token_ids is None else call.prompt_token_ids.data
        lengths = self._token_lengths if call.prompt_token_ids is not None else ()
        return [ids[:length] for length in lengths if length <= len(ids)]


_ANY: Final = object()


def _latest(completions: Sequence[CompletionRef], index: int) -> CompletionRef:
    """The first choice of the latest call before a call, else of the latest call."""
    end = bisect_left(completions, (index, 0)) or len(completions)
    return completions[bisect_left(completions, (completions[end - 1][0], 0))]


def choice_at(call: InferenceCall, position: int) -> Choice:
    """The choice at a position of a call that has it."""
    return (call.choices or ())[position]


def continues_tokens(continuing: InferenceCall, call: InferenceCall, position: int) -> bool:
    """Whether the prompt's ids are known to begin with the token path of a completion."""
    prompt, before, sampled = continuing.prompt_token_ids, call.prompt_token_ids, choice_at(call, position).token_ids
    if prompt is None or before is None or sampled is None:
        return False
    return prompt.startswith(before) and prompt.startswith(sampled, len(before))


def with_answer_ids(calls: Sequence[InferenceCall], numbers: "PrefixNumbers") -> Sequence[InferenceCall]:
    """Give sampled tool calls the ids that later prompts repeat them with."""
    if not any(map(_lacks_ids, calls)):
        return calls
    prompt_numbers: list[int] = []
    repeats = _Repeats()
    for call in calls:
        prompt = call.input_messages or ()
        prefixes = numbers.of(prompt)
        prompt_numbers.append(prefixes[-1])
        for message, prefix in zip(prompt, prefixes, strict=False):
            if message.role == "assistant" and message.tool_calls:
                repeats.add(prefix, message)
    return [
        _with_ids(call, repeats, prefix) if _lacks_ids(call) else call
        for call, prefix in zip(calls, prompt_numbers, strict=True)
    ]


def _lacks_ids(call: InferenceCall) -> bool:
    if call.input_messages is None or not call.choices:
        return False
    for choice in call.choices:
        for called in choice.message.tool_calls:  # any() costs twice as much, and this is asked of every call
            if called.id is None:
                return True
    return False


def _with_ids(call: InferenceCall, repeats: "_Repeats", prefix: int) -> InferenceCall:
    choices = tuple(_repeated(choice, repeats, prefix) for choice in call.choices or ())
    return msgspec.structs.replace(call, choices=choices)


def _repeated(choice: Choice, repeats: "_Repeats", prefix: int) -> Choice:
    """A choice with the ids of the first message that repeats it."""
    answer = choice.message
    repeat = repeats.first(prefix, answer)
    if repeat is None:
        return choice
    pairs = zip(answer.tool_calls, repeat.tool_calls, strict=True)
    message = msgspec.structs.replace(answer, tool_calls=tuple(_with_id(*pair) for pair in pairs))
    return msgspec.structs.replace(choice, message=message)


class _Repeats:
    """Assistant messages with tool calls, by the prefix of the prompt that they stand behind."""

    def __init__(self) -> None:
        self._behind: dict[int, list[Message]] = {}
        self._first: dict[tuple[int, tuple[bool, ...]], dict[object, Message]] = {}

    def add(self, prefix: int, message: Message) -> None:
        """Note that a message stands behind this prefix."""
        self._behind.setdefault(prefix, []).append(message)

    def first(self, prefix: int, answer: Message) -> Message | None:
        """The first message behind a prefix that equals the answer but for the tool call ids that the answer lacks."""
        lacking = tuple(call.id is None for call in answer.tool_calls)
        if not any(lacking):
            return None
        if (prefix, lacking) not in self._first:
            behind = reversed(self._behind.get(prefix, ()))
            same_count = (message for message in behind if len(message.tool_calls) == len(lacking))
            self._first[prefix, lacking] = {_without_ids(message, lacking): message for message in same_count}
        return self._first[prefix, lacking].get(_without_ids(answer, lacking))


def _without_ids(message: Message, lacking: tuple[bool, ...]) -> object:
    calls = [
        msgspec.structs.replace(call, id=None) if lacks else call
        for call, lacks in zip(message.tool_calls, lacking, strict=True)
    ]
    return msgspec.structs.replace(message, tool_calls=tuple(calls)).identity


def _with_id(sampled: ToolCall, repeated: ToolCall) -> ToolCall:
    return sampled if sampled.id is not None else msgspec.structs.replace(sampled, id=repeated.id)


def with_joined_pieces(calls: Sequence[InferenceCall]) -> Sequence[InferenceCall]:
    """Join neighboring messages of Gemini's prompts that together are an earlier answer, at its place.

    [user] -> "Hello"; [user, "Hel", "lo", user] -> …. Others were sent as they are, or nobody knows who said them.
    """
    answers: set[tuple[int, tuple[object, ...]]] = set()
    joined = [*calls]
    for index, call in enumerate(calls):
        prompt = call.input_messages
        if prompt is None or not is_gemini(call.provider, call.operation_name):
            continue
        if any(one.role == other.role == "assistant" for one, other in pairwise(prompt)):
            prompt = _join_pieces(prompt, answers)
            joined[index] = msgspec.structs.replace(call, input_messages=prompt)
        answers.update((len(prompt), choice.message.identity) for choice in call.choices or ())
    return joined


def _join_pieces(
    prompt: Sequence[Message], answers: AbstractSet[tuple[int, tuple[object, ...]]]
) -> tuple[Message, ...]:
    done: list[Message] = []
    for role, neighbors in groupby(prompt, key=lambda message: message.role):
        run = [*neighbors]
        if role == "assistant" and len(run) > 1 and all(piece.parts is None for piece in run):
            whole = join_messages(run)
            run = [whole] if (len(done), whole.identity) in answers else run
        done += run
    return tuple(done)


_RECENT_PROMPTS: Final = 8
"""Prompts that a new one is compared with as a whole: a few, because sub-agents and parallel calls alternate."""


class PrefixNumbers(msgspec.Struct):
    """Numbers for the prefixes of a rollout's prompts, each looked at once. The empty prefix has 0.

    Invariant: two prefixes have one number if and only if their messages are the same one by one (`Message.identity`).
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
        return self.longer_prefixes.setdefault((prefix, self._number(message)), len(self.longer_prefixes) + 1)

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

    def _number(self, message: Message) -> int:
        """The number of all messages with this identity."""
        seen = self.seen_messages.get(id(message))
        if seen is None:
            seen = (message, self.message_numbers.setdefault(message.identity, len(self.message_numbers) + 1))
            self.seen_messages[id(message)] = seen
        return seen[1]


# Token parents: paths are in a radix tree, so a prompt is compared with all of them at once. A plain conversation needs
# no tree.

_WIDTH = 4  # bytes of an id


class _Node(msgspec.Struct):
    """A point in the tree: the ids that lead to it from the node above, and the latest turn whose path ends here."""

    edge: bytes = b""
    turn: int | None = None
    children: "dict[bytes, _Node]" = msgspec.field(default_factory=dict[bytes, "_Node"])


_End: TypeAlias = tuple[_Node, int]
"""Where a path ends in the tree, and how many bytes it has."""


def find_token_parents(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> list[int | None]:
    """The token parent of each call as a position of a turn; `parents` are the message parents, also by call.

    `calls` stand in causal order, and the turns of all calls are numbered in that order.
    """
    if all(call.prompt_token_ids is None for call in calls):
        return [None] * len(calls)
    if _is_token_chain(calls, parents):
        return list(parents)
    return _search_tokens(calls, parents)


def _is_token_chain(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> bool:
    """Whether each call continues the one before it by messages and ids: then no other path can be longer."""
    before: InferenceCall | None = None
    for position, call in enumerate(calls):
        if len(call.choices or ()) != 1 or call.prompt_token_ids is None:
            return False
        if parents[position] != (position - 1 if position else None):
            return False
        if before is not None and not continues_tokens(call, before, 0):
            return False
        before = call
    return True


def _search_tokens(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> list[int | None]:
    root = _Node()
    token_parents: list[int | None] = []
    ends: list[_End | None] = []  # of each turn's path
    completions: list[tuple[InferenceCall, int]] = []
    for call, parent in zip(calls, parents, strict=True):
        prompt = None if call.prompt_token_ids is None else call.prompt_token_ids.data
        node, size, longest = root, 0, None
        if parent is not None and (end := ends[parent]) is not None and continues_tokens(call, *completions[parent]):
            (node, size), longest = end, parent  # a longer path can only go on from there
        token_parents.append(None if prompt is None else _longest_path(node, prompt, size, longest))
        prompt_end = None if prompt is None else (_insert(node, prompt[size:]), len(prompt))
        for position, choice in enumerate(call.choices or ()):
            ends.append(_end_of_path(prompt_end, choice.token_ids, turn=len(completions)))
            completions.append((call, position))
    return token_parents


def _end_of_path(prompt_end: _End | None, sampled: TokenIds | None, *, turn: int) -> _End | None:
    """Where a turn's path ends in the tree; one that sampled tokens is noted there."""
    if prompt_end is None or sampled is None:
        return None
    node, size = prompt_end
    if sampled:
        node = _insert(node, sampled.data)
        node.turn = turn
    return node, size + len(sampled.data)


def _longest_path(node: _Node, prompt: bytes, end: int, turn: int | None) -> int | None:
    """The turn with the longest path that the prompt begins with, from a node on that stands at byte `end` of it.

    `turn` is the one whose path ends there.
    """
    while (child := node.children.get(prompt[end : end + _WIDTH])) is not None and prompt.startswith(child.edge, end):
        node, end = child, end + len(child.edge)
        if node.turn is not None:
            turn = node.turn
    return turn


def _insert(node: _Node, path: bytes) -> _Node:
    """The node at the end of a path below `node`, made where there was none."""
    end = 0
    while end < len(path):
        first = path[end : end + _WIDTH]
        child = node.children.get(first)
        if child is None:
            child = node.children[first] = _Node(path[end:])
        elif not path.startswith(child.edge, end):
            child = _split(node, first, child, shared_prefix(child.edge, path[end : end + len(child.edge)]))
        node, end = child, end + len(child.edge)
    return node


def _split(above: _Node, first: bytes, child: _Node, size: int) -> _Node:
    """A new node `size` bytes down the edge to `child`, which keeps its own end."""
    between = _Node(child.edge[:size])
    child.edge = child.edge[size:]
    between.children[child.edge[:_WIDTH]] = child
    above.children[first] = between
    return between


def shared_prefix(one: bytes, other: bytes) -> int:
    """How many bytes of whole ids both begin with."""
    size = min(len(one), len(other))
    # Compared as two large numbers: the lowest bit that differs lies in the first id that does.
    differing = int.from_bytes(one[:size], "little") ^ int.from_bytes(other[:size], "little")
    return ((differing & -differing).bit_length() - 1) // 32 * _WIDTH if differing else size
