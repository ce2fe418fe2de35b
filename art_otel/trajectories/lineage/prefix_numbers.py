"""PrefixNumbers: equal beginnings of prompts have one number.

Invariant: two prefixes have one number if and only if their messages are the same one by one (`Message.identity`).
"""

from typing import Final

import msgspec

from art_otel.calls import Message

_RECENT_PROMPTS: Final = 8
"""Prompts that a new one is compared with as a whole: a few, because sub-agents and parallel calls alternate."""


class PrefixNumbers(msgspec.Struct):
    """Numbers for the prefixes of the prompts it was asked about. The empty prefix has 0."""

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
