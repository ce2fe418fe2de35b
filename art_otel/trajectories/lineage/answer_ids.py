"""Answer ids: the ids of sampled tool calls, where only a later prompt has them.

Streams lose them under some instrumentors (LiteLLM's callback, OpenInference's Mistral), and then no prompt would seem
to continue the answer. Invariant: an id is taken only from a prompt that is the call's own prompt and then the same
answer, and only where none was recorded. Linear in the number of messages.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, ToolCall
from art_otel.trajectories.lineage.prefix_numbers import PrefixNumbers


def with_answer_ids(calls: Sequence[InferenceCall]) -> Sequence[InferenceCall]:
    """Give sampled tool calls the ids that later prompts repeat them with."""
    if not any(map(_lacks_ids, calls)):
        return calls
    numbers = PrefixNumbers()
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
        """Add a message of a prompt."""
        self._behind.setdefault(prefix, []).append(message)

    def first(self, prefix: int, answer: Message) -> Message | None:
        """The first message behind a prefix that is an answer but for the ids that this lacks."""
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
