"""Message parents: the completion whose message path each prompt continues.

Invariant: a call's parent is the completion with the longest message path that the call's prompt begins with, whatever
the order of the calls and whatever their token ids say. Messages are compared by `Message.identity`. A path is shorter
than the path of its continuation, so parents never form a cycle.

Equal prefixes have one number (`PrefixNumbers`), so one look-up finds all completions whose path is a prefix of a
prompt. Where each call continues the one before it, nothing needs to be looked up.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Final, NamedTuple, TypeAlias

from art_otel.calls import Choice, InferenceCall
from art_otel.trajectories.lineage.prefix_numbers import PrefixNumbers

CompletionRef: TypeAlias = tuple[int, int]
"""The position of a call, and the position of a choice in it."""


class MessageParent(NamedTuple):
    """The completion that a prompt continues. `verbatim`: the prompt is known to repeat its path word for word."""

    completion: CompletionRef
    verbatim: bool = False


def find_message_parents(calls: Sequence[InferenceCall]) -> list[MessageParent | None]:
    """The message parent of each call; None for a prompt that continues no other call. Linear in the messages."""
    if is_chain(calls):
        return [None, *(MessageParent((index, 0), verbatim=True) for index in range(len(calls) - 1))][: len(calls)]
    return _look_up_parents(calls)


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


def _look_up_parents(calls: Sequence[InferenceCall]) -> list[MessageParent | None]:
    numbers = PrefixNumbers()
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
