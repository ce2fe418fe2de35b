"""Answer ids: the ids of sampled tool calls, where only a later prompt has them.

Streams lose them under some instrumentors (LiteLLM's callback, OpenInference's Mistral), and then no prompt would seem
to continue the answer. Invariant: an id is taken only from a prompt that is the call's own prompt and then the same
answer, and only where none was recorded. Linear in the number of messages.
"""

from collections.abc import Mapping, Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, ToolCall
from art_otel.trajectories.lineage.prefix_numbers import PrefixNumbers


def with_answer_ids(calls: Sequence[InferenceCall]) -> Sequence[InferenceCall]:
    """Give sampled tool calls the ids that later prompts repeat them with."""
    if not any(map(_lacks_ids, calls)):
        return calls
    numbers = PrefixNumbers()
    repeats: dict[int, list[Message]] = {}
    prompt_numbers: list[int] = []
    for call in calls:
        prompt = call.input_messages or ()
        prefixes = numbers.of(prompt)
        prompt_numbers.append(prefixes[-1])
        for message, prefix in zip(prompt, prefixes, strict=False):
            if message.role == "assistant" and message.tool_calls:
                repeats.setdefault(prefix, []).append(message)
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


def _with_ids(call: InferenceCall, repeats: Mapping[int, Sequence[Message]], prefix: int) -> InferenceCall:
    choices = tuple(_repeated(choice, repeats.get(prefix, ())) for choice in call.choices or ())
    return msgspec.structs.replace(call, choices=choices)


def _repeated(choice: Choice, repeats: Sequence[Message]) -> Choice:
    """A choice with the ids of the first message that repeats it."""
    answer = choice.message
    for repeat in repeats:
        if len(repeat.tool_calls) == len(answer.tool_calls):
            pairs = zip(answer.tool_calls, repeat.tool_calls, strict=True)
            message = msgspec.structs.replace(answer, tool_calls=tuple(_with_id(*pair) for pair in pairs))
            if message.identity == repeat.identity:
                return msgspec.structs.replace(choice, message=message)
    return choice


def _with_id(sampled: ToolCall, repeated: ToolCall) -> ToolCall:
    return sampled if sampled.id is not None else msgspec.structs.replace(sampled, id=repeated.id)
