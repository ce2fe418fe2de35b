"""ContinuedResponses: rebuild the prompts of calls with `previous_response_id`, as the server put them together.

Invariant: a prompt is whole or unknown, and those of a rollout have no more messages together than its limit.
Every call of a chain holds the messages of all before it, which nobody recorded.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import InferenceCall, Message


def continue_responses(calls: Sequence[InferenceCall], limit: int) -> tuple[Sequence[InferenceCall], int]:
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
    """Rebuild a prompt: new instructions, the earlier prompt without its own, its sampled message, the new input.

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
