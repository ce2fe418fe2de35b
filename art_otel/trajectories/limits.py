"""Limits: what assembly bounds, so that a small dump does not become gigabytes.

Invariant: what is beyond a limit is left out, counted and named; a limit looks at one span or one rollout, so that it
means the same whatever is assembled with it.
"""

from typing import Final

MAX_REWARD_BYTES: Final = 64 << 20
"""Bytes that the rewards of one span may be, once for each of several spans that it links to."""

MAX_CONTINUED_MESSAGES: Final = 16 << 20
"""Messages of a rollout's prompts that were put together by response id: a chain of 4,000 calls has as many."""
