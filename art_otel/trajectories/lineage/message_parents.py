"""Message parents: the completion whose message path each prompt continues.

Invariant: a call's parent is the completion with the longest message path that the call's prompt begins with, whatever
the order of the calls and whatever their token ids say. Messages are compared by `Message.identity`. A path is shorter
than the path of its continuation, so parents never form a cycle.

Equal prefixes have one number (`PrefixNumbers`), so one look-up finds all completions whose path is a prefix of a
prompt. Where each call continues the one before it, nothing needs to be looked up.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

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
    """Order equal paths: a prompt continues the greatest.

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
