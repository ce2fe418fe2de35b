"""Budget: the bytes that are left for what is said once and repeated by many calls or rewards.

Invariant: a rollout's own budget is all that decides what it repeats, so that it is the same whatever is assembled with
it; only what its calls hold in memory counts for all together, of which there is budget for more than any sound tree has.
"""

from typing import Final

import msgspec

MAX_REPEATED: Final = 64 << 20
"""Bytes that one kind of repeated text may take in a rollout."""

MAX_CONTINUED_MESSAGES: Final = 16 << 20
"""Messages of a rollout's prompts that were put together by response id: a chain of 4,000 calls has as many."""

_SHORT: Final = 64


class Budget(msgspec.Struct, eq=False):
    """`left` counts bytes."""

    left: int

    def has(self, size: int) -> bool:
        """Whether there is budget for as many bytes."""
        return size <= self.left

    def take(self, size: int) -> bool:
        """As `has`, and if so it is taken."""
        if not self.has(size):
            return False
        self.left -= size
        return True

    def take_text(self, text: str) -> bool:
        """As `take`, of a text; one that is short needs no budget, as the span that repeats it takes more."""
        return len(text) <= _SHORT or self.take(len(text))
