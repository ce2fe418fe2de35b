"""Receipt: what says that a consumer has a rollout."""

from typing import TypeAlias

import msgspec

Key: TypeAlias = tuple[str, int, str]
"""A trajectory's rollout id, attempt and trace id, as its `order`."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What acknowledges a rollout: which, with which revision, and the digest of the spans that it had."""

    rollout_id: str
    attempt: int
    trace_id: str
    revision: int
    digest: str

    @property
    def key(self) -> Key:
        """The rollout's key, which is a trajectory's `order`."""
        return (self.rollout_id, self.attempt, self.trace_id)
