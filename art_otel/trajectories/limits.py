"""Limits: the one table of what a rollout may hold. What is beyond a limit is left out, counted and named.

Invariant: a limit is a rollout's or a span's own, so that it is the same whatever is assembled with it. How large a
rollout may be as a whole is a setting of the conversion (`--max-rollout-spans`, `--max-rollout-bytes`).
"""

from typing import Final

MAX_CONTINUED_MESSAGES: Final = 16 << 20
"""Messages of a rollout's prompts that were put together by response id: a chain of 4,000 calls has as many."""
