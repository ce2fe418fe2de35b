"""Scoring: which reward a turn has, and how it is compared with those of its group."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from art_otel.data.rewards.advantages import Advantage
from art_otel.data.rewards.credit import Credit

ZeroVariance: TypeAlias = Literal["keep", "drop"]
"""What becomes of groups in which all known rewards are equal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scoring:
    """Options of `art_otel.batches` by the same names. Without an `advantage`, turns without a reward are trained."""

    credit: Credit
    advantage: Advantage | None
    zero_variance: ZeroVariance = "keep"

    def __str__(self) -> str:
        """What decides which turns are trained, whatever their rewards come to."""
        trained = "all" if self.advantage is None else f"rewarded by {self.credit.per} {self.credit.name}"
        return f"{trained} zero_variance={self.zero_variance}"
