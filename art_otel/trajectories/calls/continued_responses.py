"""ContinuedResponses: rebuild the prompts of calls with `previous_response_id`, as the server put them together.

Invariant: a prompt is whole or has a gap, and those of a rollout have no more messages together than its limit.
Every call of a chain holds the messages of all before it, which nobody recorded.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import Gap, InferenceCall, Message


def continue_responses(calls: Sequence[InferenceCall], limit: int) -> Sequence[InferenceCall]:
    """Give calls with a `previous_response_id` their prompts; one that cannot be rebuilt is unknown and has a gap."""
    if all(call.previous_response_id is None for call in calls):
        return calls
    responses: dict[str, InferenceCall] = {}
    continued: list[InferenceCall] = []
    for call in calls:
        if call.previous_response_id is not None:
            earlier = responses.get(call.previous_response_id)
            prompt = _continued(earlier, call)
            if prompt is not None and len(prompt) > limit:
                prompt = None
            limit -= len(prompt or ())
            call = _with_prompt(call, earlier, prompt)  # noqa: PLW2901 # same call
        if call.response_id is not None:
            responses[call.response_id] = call
        continued.append(call)
    return continued


def _with_prompt(
    call: InferenceCall, earlier: InferenceCall | None, prompt: tuple[Message, ...] | None
) -> InferenceCall:
    """The call with its prompt, and with the gaps of what that continues."""
    gaps = dict.fromkeys(call.gaps)
    if prompt is None or earlier is None:
        gaps[Gap(kind="history on the server", field="prompt", evidence=f"{call.previous_response_id}")] = None
    else:
        for gap in earlier.gaps:
            if gap.field in ("prompt", "call", "answer", "answer[0]") and gap.kind != "contradicted":
                gaps[msgspec.structs.replace(gap, field="prompt")] = None
    return msgspec.structs.replace(call, input_messages=prompt, gaps=tuple(gaps))


def _continued(earlier: InferenceCall | None, call: InferenceCall) -> tuple[Message, ...] | None:
    """Rebuild a prompt: new instructions, the earlier prompt without its own, its sampled message, the new input.

    OpenAI Responses API: "instructions from the previous response are not carried over".
    """
    if earlier is None or earlier.input_messages is None or not earlier.choices or call.input_messages is None:
        return None
    instructions, added = _split_instructions(call)
    _, history = _split_instructions(earlier)
    return (*instructions, *history, earlier.choices[0].message, *added)


def _split_instructions(call: InferenceCall) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a prompt, and what is behind them. A system message among the input items is none."""
    prompt = call.input_messages or ()
    is_first = bool(prompt) and prompt[0].role == "system" and call.has_instructions is not False
    return (prompt[:1], prompt[1:]) if is_first else ((), prompt)
