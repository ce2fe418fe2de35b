"""Message parents: the completion whose message path each prompt continues.

Invariant: a call's parent is the completion with the longest message path that the call's prompt begins with, whatever
the order of the calls and whatever their token ids say. Messages are compared by `Message.identity`. A path is shorter
than the path of its continuation, so parents never form a cycle.

Every prefix of a prompt gets a number, and equal prefixes get the same one, so one dictionary look-up finds all
completions whose path is that prefix. Where each call continues the one before it, nothing needs to be looked up.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall, Message

CompletionRef: TypeAlias = tuple[int, int]
"""The position of a call, and the position of a choice in it."""

_RECENT_PROMPTS: Final = 8
"""Prompts that a new one is compared with as a whole: a few, because sub-agents and parallel calls alternate."""


class MessageParent(NamedTuple):
    """The completion that a prompt continues. `verbatim`: the prompt is known to repeat its path word for word."""

    completion: CompletionRef
    verbatim: bool = False


def find_message_parents(calls: Sequence[InferenceCall]) -> list[MessageParent | None]:
    """The message parent of each call; None for a prompt that continues no other call. Linear in the messages."""
    if all(_goes_on(before, call) for before, call in pairwise(calls)):
        return [None, *(MessageParent((index, 0), verbatim=True) for index in range(len(calls) - 1))][: len(calls)]
    return _look_up_parents(calls)


def _goes_on(before: InferenceCall, call: InferenceCall) -> bool:
    """Whether the prompt is the one before and its only completion, in the same words, with or without more."""
    path, prompt = before.input_messages, call.input_messages
    if path is None or prompt is None or before.choices is None or len(before.choices) != 1:
        return False
    count = len(path)
    return len(prompt) > count and prompt[count] == before.choices[0].message and prompt[:count] == path


class _PrefixNumbers(msgspec.Struct):
    """Numbers for the prefixes of prompts: equal prefixes have one number, the empty prefix has 0."""

    message_numbers: dict[tuple[object, ...], int] = msgspec.field(default_factory=dict[tuple[object, ...], int])
    seen_messages: dict[int, tuple[Message, int]] = msgspec.field(default_factory=dict[int, tuple[Message, int]])
    longer_prefixes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict[tuple[int, int], int])
    recent: list[tuple[tuple[Message, ...], list[int]]] = msgspec.field(
        default_factory=list[tuple[tuple[Message, ...], list[int]]]
    )

    def longer(self, prefix: int, message: Message) -> int:
        """The number of a prefix with one more message."""
        return self.longer_prefixes.setdefault((prefix, self._number(message)), len(self.longer_prefixes) + 1)

    def of(self, prompt: tuple[Message, ...]) -> list[int]:
        """The number of every prefix of the prompt, the empty one first. Shape: (messages + 1,)."""
        shared: tuple[Message, ...] = ()
        numbers = [0]
        for earlier, its_numbers in self.recent:
            if len(earlier) > len(shared) and prompt[: len(earlier)] == earlier:
                shared, numbers = earlier, its_numbers
        numbers = numbers.copy()
        for message in prompt[len(shared) :]:
            numbers.append(self.longer(numbers[-1], message))
        self.recent = [(prompt, numbers), *self.recent[: _RECENT_PROMPTS - 1]]
        return numbers

    def _number(self, message: Message) -> int:
        """The number of all messages with this identity."""
        seen = self.seen_messages.get(id(message))
        if seen is None:
            # The message is kept beside its number so that its id() cannot be given to another one.
            seen = (message, self.message_numbers.setdefault(message.identity, len(self.message_numbers) + 1))
            self.seen_messages[id(message)] = seen
        return seen[1]


def _look_up_parents(calls: Sequence[InferenceCall]) -> list[MessageParent | None]:
    numbers = _PrefixNumbers()
    prefixes = [numbers.of(call.input_messages or ()) for call in calls]
    completions: dict[int, list[CompletionRef]] = {}
    for index, call in enumerate(calls):
        if call.input_messages is not None:
            for position, choice in enumerate(call.choices or ()):
                path = numbers.longer(prefixes[index][-1], choice.message)
                completions.setdefault(path, []).append((index, position))
    return [_longest_match(index, calls, prefixes[index], completions) for index in range(len(calls))]


def _longest_match(
    index: int,
    calls: Sequence[InferenceCall],
    prefixes: Sequence[int],
    completions: Mapping[int, Sequence[CompletionRef]],
) -> MessageParent | None:
    for prefix in reversed(prefixes):
        matches = completions.get(prefix)
        if matches:
            best = matches[0] if len(matches) == 1 else max(matches, key=lambda one: _preference(one, index, calls))
            return MessageParent(best)
    return None


def _preference(
    completion: CompletionRef, index: int, calls: Sequence[InferenceCall]
) -> tuple[bool, bool, bool, bool, bool, int, int]:
    """Which of several equal paths a prompt continues: the greatest.

    The response that the call names; one whose token path it continues too; one with the same reasoning; one of the
    same agent; the latest before it.
    """
    position, choice_position = completion
    call, continuing = calls[position], calls[index]
    message = choice_at(call, choice_position).message
    repeated = (continuing.input_messages or ())[len(call.input_messages or ())]
    return (
        continuing.previous_response_id is not None and call.response_id == continuing.previous_response_id,
        continues_tokens(continuing, call, choice_position),
        repeated.reasoning == message.reasoning,
        continuing.agent == call.agent,
        position < index,
        position,
        -choice_position,
    )


def choice_at(call: InferenceCall, position: int) -> Choice:
    """The choice at a position of a call that has it."""
    return (call.choices or ())[position]


def continues_tokens(continuing: InferenceCall, call: InferenceCall, position: int) -> bool:
    """Whether the prompt's ids are known to begin with the token path of a completion."""
    prompt, before, sampled = continuing.prompt_token_ids, call.prompt_token_ids, choice_at(call, position).token_ids
    if prompt is None or before is None or sampled is None:
        return False
    return prompt.startswith(before) and prompt.startswith(sampled, len(before))
