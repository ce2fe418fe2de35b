"""Origins: which sample each prompt continues.

Invariant: a call's origin is the sample with the longest path, messages and (where the server gave them) token ids,
that is a prefix of the call's prompt, whatever the order of the calls.

A path is known by the chain of its messages' identities, hashed from the start, so one dictionary look-up a prompt
position finds the candidates; comparing identities then confirms them. Where every call goes on with the one before
it, as in most rollouts, there is but one candidate of each length and nothing to look up.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall, Message

Sample: TypeAlias = tuple[int, int]
"""Position of a call, position of a choice in it."""

_RECENT: Final = 8
"""A few prompts, because sub-agents and parallel calls alternate."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a call's prompt comes from: the sample it continues, and a deeper one it continues by messages only.

    `verbatim` says that the prompt is known to repeat the parent's path in the same words.
    """

    parent: Sample | None = None
    drifted_from: Sample | None = None
    verbatim: bool = False


def find_origins(calls: Sequence[InferenceCall]) -> list[Origin]:
    """The origin of each call, of calls in the order of their start. Linear in the number of messages."""
    if all_go_on(calls):
        return [_origin_in_chat(index, calls) for index in range(len(calls))]
    return _look_up_origins(calls)


def all_go_on(calls: Sequence[InferenceCall]) -> bool:
    """Whether each call goes on with the one before it, in the same words."""
    return all(_goes_on(above, call) for above, call in pairwise(calls))


def _goes_on(above: InferenceCall, call: InferenceCall) -> bool:
    """Whether the prompt is the one above and what was sampled then, in the same words, with or without more."""
    before, prompt = above.input_messages, call.input_messages
    if before is None or prompt is None or above.choices is None or len(above.choices) != 1:
        return False
    count = len(before)
    return len(prompt) > count and prompt[count] == above.choices[0].message and prompt[:count] == before


def _origin_in_chat(index: int, calls: Sequence[InferenceCall]) -> Origin:
    """The origin of a call all calls before which went on with each other: the nearest whose token ids it continues."""
    drifted_from: Sample | None = None
    for above in range(index - 1, -1, -1):
        if tokens_continue(calls[index], calls[above], 0):
            return Origin((above, 0), drifted_from, verbatim=True)
        drifted_from = drifted_from or (above, 0)
    return Origin(None, drifted_from)


class Prompts(msgspec.Struct):
    """The prompts of all calls as numbers: equal messages have one number, equal prefixes one chain."""

    numbers: dict[tuple[object, ...], int] = msgspec.field(default_factory=dict[tuple[object, ...], int])
    known: dict[int, tuple[Message, int]] = msgspec.field(default_factory=dict[int, tuple[Message, int]])
    chains: dict[tuple[int, int], int] = msgspec.field(default_factory=dict[tuple[int, int], int])
    recent: list[tuple[tuple[Message, ...], list[int]]] = msgspec.field(
        default_factory=list[tuple[tuple[Message, ...], list[int]]]
    )

    def number(self, message: Message) -> int:
        """The number of all messages equal to this one."""
        seen = self.known.get(id(message))
        if seen is None:
            # The message is kept beside its number so that its id() cannot be given to another one.
            seen = (message, self.numbers.setdefault(message.identity, len(self.numbers) + 1))
            self.known[id(message)] = seen
        return seen[1]

    def extend(self, chain: int, message: Message) -> int:
        """The chain that follows `chain` by `message`. Chain 0 is the empty prompt."""
        return self.chains.setdefault((chain, self.number(message)), len(self.chains) + 1)

    def prefixes(self, prompt: tuple[Message, ...]) -> list[int]:
        """The chain of every prefix of the prompt, the empty one first."""
        before: tuple[Message, ...] = ()
        chains = [0]
        for known, its_chains in self.recent:  # a prompt that goes on with one of them shares its messages
            if len(known) > len(before) and prompt[: len(known)] == known:
                before, chains = known, its_chains
        chains = chains.copy()
        for message in prompt[len(before) :]:
            chains.append(self.extend(chains[-1], message))
        self.recent = [(prompt, chains), *self.recent[: _RECENT - 1]]
        return chains


def _look_up_origins(calls: Sequence[InferenceCall]) -> list[Origin]:
    prompts = Prompts()
    prefixes = [prompts.prefixes(call.input_messages or ()) for call in calls]
    samples: dict[int, list[Sample]] = {}
    for index, call in enumerate(calls):
        if call.input_messages is not None:
            for position, choice in enumerate(call.choices or ()):
                samples.setdefault(prompts.extend(prefixes[index][-1], choice.message), []).append((index, position))
    rivals = {chain: _Rivals(found, calls) for chain, found in samples.items()}
    return [_origin(index, calls, chains, rivals) for index, chains in enumerate(prefixes)]


def _origin(
    index: int, calls: Sequence[InferenceCall], chains: Sequence[int], rivals: Mapping[int, "_Rivals"]
) -> Origin:
    drifted_from: Sample | None = None
    for chain in reversed(chains):
        found = rivals.get(chain)
        if found is None:
            continue
        first = found.preferred(index)
        if tokens_continue(calls[index], calls[first[0]], first[1]):
            return Origin(parent=first, drifted_from=drifted_from)
        for sample in found.others(index):
            if tokens_continue(calls[index], calls[sample[0]], sample[1]):
                return Origin(parent=sample, drifted_from=drifted_from)
        drifted_from = drifted_from or first
    return Origin(drifted_from=drifted_from)


class _Rivals:
    """The samples of equal paths. They are ordered for one call only where its token ids refuse the first of them."""

    def __init__(self, samples: list[Sample], calls: Sequence[InferenceCall]) -> None:
        self._samples = samples
        self._calls = calls

    @cached_property
    def _alike(self) -> Mapping[tuple[str | None, ...], Sequence[Sample]]:
        """Those of one response, reasoning and agent, reasoning, agent, and all, each in the order of the calls."""
        found: dict[tuple[str | None, ...], list[Sample]] = {}
        for sample in sorted(self._samples, key=lambda sample: (sample[0], -sample[1])):
            call = self._calls[sample[0]]
            for kind in _kinds(call.response_id, choice_at(call, sample[1]).message.reasoning, call.agent):
                found.setdefault(kind, []).append(sample)
        return found

    def preferred(self, index: int) -> Sample:
        """The sample that `_preference` puts first for a call."""
        if len(self._samples) == 1:
            return self._samples[0]
        call = self._calls[index]
        place = len(self._calls[self._samples[0][0]].input_messages or ())  # of equal paths
        repeated = (call.input_messages or ())[place]
        kinds = _kinds(call.previous_response_id, repeated.reasoning, call.agent)
        alike = next(self._alike[kind] for kind in kinds if kind in self._alike)
        return alike[bisect_left(alike, (index,)) - 1]  # the last where all are later

    def others(self, index: int) -> list[Sample]:
        """All but the preferred sample, by preference."""
        if len(self._samples) == 1:
            return []
        return sorted(self._samples, key=lambda sample: _preference(sample, index, self._calls), reverse=True)[1:]


def _kinds(response: str | None, reasoning: str | None, agent: str | None) -> Sequence[tuple[str | None, ...]]:
    """What a sample may have in common with the message that repeats it, the most first."""
    alike = (("both", reasoning, agent), ("reasoning", reasoning), ("agent", agent), ("neither",))
    return alike if response is None else (*(("response", response, *kind) for kind in alike), *alike)


def _preference(sample: Sample, index: int, calls: Sequence[InferenceCall]) -> tuple[bool, bool, bool, bool, int, int]:
    """Which of several equal paths a prompt continues: the one that the call names.

    Else they are told apart by reasoning, agent, order; then it is the latest call.
    """
    call, position = calls[sample[0]], sample[1]
    child = calls[index]
    message = choice_at(call, position).message
    place = len(call.input_messages or ())
    repeated = (child.input_messages or ())[place]
    return (
        child.previous_response_id is not None and call.response_id == child.previous_response_id,
        repeated.reasoning == message.reasoning,
        child.agent == call.agent,
        sample[0] < index,
        sample[0],
        -position,
    )


def choice_at(call: InferenceCall, position: int) -> Choice:
    """The choice at a position of a call that has it."""
    return (call.choices or ())[position]


def tokens_continue(child: InferenceCall, parent: InferenceCall, position: int) -> bool:
    """Whether the child's prompt ids begin with the parent's path, or either is unknown."""
    prompt, before, sampled = child.prompt_token_ids, parent.prompt_token_ids, choice_at(parent, position).token_ids
    if prompt is None or before is None or sampled is None:
        return True
    return prompt.data.startswith(before.data) and prompt.data.startswith(sampled.data, len(before.data))
