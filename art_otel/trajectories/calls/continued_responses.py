"""Resumed prompts: what the server put together for calls that continue an earlier response by its id.

Invariant: a prompt is whole or unknown, and those of a rollout take no more budget than `MAX_RESUMED`. Every call of a
chain holds the prompts of all before it, which nobody recorded: without a bound a small dump would fill the memory.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from art_otel.calls import InferenceCall, Message
from art_otel.trajectories.limits import REFERENCE, Budgets

MAX_RESUMED: Final = 128 * 1024**2
"""The most bytes that the resumed prompts of one rollout take.

Those that go on word for word may have 16 million messages, as chains of 4,000 calls of two messages have.
"""

_TOLD_ANEW: Final = 256
"""Bytes of a message without its text in a prompt that does not: it is hashed, and stored, once more."""


class _Response(NamedTuple):
    """A call whose response may be continued, and the bytes of what is repeated then, told anew."""

    call: InferenceCall
    size: int


def resume_prompts(calls: Sequence[InferenceCall], budgets: Budgets) -> tuple[Sequence[InferenceCall], int]:
    """Give calls with a `previous_response_id` their prompts, and count those whose prompt is unknown.

    The earlier prompt without its instructions, its sampled message, then the new input behind its own instructions
    (OpenAI Responses API: "instructions from the previous response are not carried over").
    """
    if all(call.previous_response_id is None for call in calls):
        return calls, 0
    responses: dict[str, _Response] = {}
    resumed: list[InferenceCall] = []
    unresolved = 0
    for call in calls:
        _, added = _parted(call.input_messages or ())
        size = _size(added)
        if call.previous_response_id is not None:
            earlier = responses.get(call.previous_response_id)
            size += 0 if earlier is None else earlier.size
            prompt = None if earlier is None else _continued(earlier, call, budgets)
            unresolved += prompt is None
            call = msgspec.structs.replace(call, input_messages=prompt)  # noqa: PLW2901 # same call
        if call.response_id is not None:
            sampled = [choice.message for choice in call.choices[:1]] if call.choices else ()
            responses[call.response_id] = _Response(call, size + _size(sampled))
        resumed.append(call)
    return resumed, unresolved


def _continued(earlier: _Response, call: InferenceCall, budgets: Budgets) -> tuple[Message, ...] | None:
    before, own, choices = earlier.call.input_messages, call.input_messages, earlier.call.choices
    if before is None or own is None or not choices:
        return None
    instructions, added = _parted(own)
    known, history = _parted(before)
    if instructions == known:
        size = REFERENCE * (len(before) + 1 + len(added))
    else:
        size = _size(own) + earlier.size
    held = REFERENCE * (len(own) + len(history) + 1)
    if not budgets.held.has(held) or not budgets.prompts.take(size):
        return None
    budgets.held.take(held)
    return (*instructions, *history, choices[0].message, *added)


def _parted(prompt: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a prompt, and what is behind them."""
    return (prompt[:1], prompt[1:]) if prompt and prompt[0].role == "system" else ((), prompt)


def _size(messages: Iterable[Message]) -> int:
    """About how many bytes messages take that are told anew."""
    return sum(_TOLD_ANEW + sum(map(len, _texts(message))) for message in messages)


def _texts(message: Message) -> Iterable[str]:
    yield from filter(None, (message.content, message.reasoning, message.refusal, message.parts))
    for call in message.tool_calls:
        yield from (call.name, call.arguments)
