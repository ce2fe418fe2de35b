"""RewardTexts: names, labels and explanations of rewards that judge several spans, and so stand in several rewards.

Invariant: what a span's rewards repeat is decided by that span alone, and what a rollout is given by that rollout, so
that it is the same whether rollouts are assembled together or apart.
"""

from collections.abc import Iterable
from typing import Final

from art_otel.conventions import BadReward, GivenReward
from art_otel.trajectories.limits import MAX_REPEATED, Budget

_FREELY_REPEATED: Final = 1 << 16
"""Bytes that the texts of one reward take for nothing, once for each span: about what its links take."""


def has_room(given: GivenReward, times: int, budget: Budget) -> bool:
    """Whether there is budget for a reward's texts so many times, which is taken then. Once they are no repetition."""
    size = max(0, times - 1) * _length(given)
    return size <= _FREELY_REPEATED or budget.take(size)


def may_be_repeated(rewards: Iterable[GivenReward], times: int) -> bool:
    """Whether there is budget for all rewards of a span, once for each span that it links to."""
    budget = Budget(MAX_REPEATED)
    return all(has_room(given, times, budget) for given in rewards)


def too_long(given: GivenReward, times: int) -> BadReward:
    """The reward for whose texts there is no budget."""
    detail = f"has {_length(given)} characters, too many to be repeated for {times} spans; give it on several spans"
    return BadReward(name=given.name, detail=detail)


def _length(given: GivenReward) -> int:
    return sum(map(len, filter(None, (given.name, given.label, given.explanation, given.comparison))))
