"""ContinuedResponses: the prompts that the server put together for calls that continue an earlier response by its id.

Invariant: a prompt is whole or unknown, and those of a rollout have no more than `MAX_CONTINUED_MESSAGES` messages
together. Every call of a chain holds the messages of all before it, which nobody recorded.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import InferenceCall, Message
from art_otel.trajectories.limits import MAX_CONTINUED_MESSAGES


def continue_responses(
    calls: Sequence[InferenceCall], limit: int = MAX_CONTINUED_MESSAGES
) -> tuple[Sequence[InferenceCall], int]:
    """Give calls with a `previous_response_id` their prompts, and count those whose prompt is unknown."""
    if all(call.previous_response_id is None for call in calls):
        return calls, 0
    responses: dict[str, InferenceCall] = {}
    continued: list[InferenceCall] = []
    unresolved = 0
    for call in calls:
        if call.previous_response_id is not None:
            prompt = _continued(responses.get(call.previous_response_id), call)
            if prompt is not None and len(prompt) > limit:
                prompt = None
            limit -= len(prompt or ())
            unresolved += prompt is None
            call = msgspec.structs.replace(call, input_messages=prompt)  # noqa: PLW2901 # same call
        if call.response_id is not None:
            responses[call.response_id] = call
        continued.append(call)
    return continued, unresolved


def _continued(earlier: InferenceCall | None, call: InferenceCall) -> tuple[Message, ...] | None:
    """The earlier prompt without its instructions, its sampled message, then the new input behind its own instructions.

    OpenAI Responses API: "instructions from the previous response are not carried over".
    """
    if earlier is None or earlier.input_messages is None or not earlier.choices or call.input_messages is None:
        return None
    instructions, added = _split_instructions(call.input_messages)
    _, history = _split_instructions(earlier.input_messages)
    return (*instructions, *history, earlier.choices[0].message, *added)


def _split_instructions(prompt: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a prompt, and what is behind them."""
    return (prompt[:1], prompt[1:]) if prompt and prompt[0].role == "system" else ((), prompt)
