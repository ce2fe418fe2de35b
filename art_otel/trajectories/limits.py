"""Limits: how much one rollout may hold, and the budgets that are charged for it.

Invariant: a limit is a rollout's own, so that it is the same whatever is assembled with it.
"""

from typing import Final

import msgspec

MAX_REPEATED: Final = 64 << 20
"""Bytes that one kind of repeated text may take in a rollout."""

MAX_CONTINUED_MESSAGES: Final = 16 << 20
"""Messages of a rollout's prompts that were put together by response id: a chain of 4,000 calls has as many."""


class Budget(msgspec.Struct, eq=False):
    """`left` counts bytes."""

    left: int

    def take(self, size: int) -> bool:
        """Whether there is budget for as many bytes, which then is taken."""
        if size > self.left:
            return False
        self.left -= size
        return True
