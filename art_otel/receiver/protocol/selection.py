"""Selection: which finished rollouts a consumer wants.

Invariant: a rollout that does not say what is asked about is not wanted.
"""

import time
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from art_otel.trajectories import Trajectory


class Facts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What selections ask about a rollout. `ended_at` is in seconds since the epoch."""

    split: str | None
    models: tuple[str, ...]
    policy_version: str | None
    ended_at: float


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """All of it has to hold; what is None is not asked about.

    - `split`: as the rollout says, `train` or `val`.
    - `model`: the requested model of any of its calls.
    - `policy_version`: that of its first call; `min_policy_version` compares as a number.
    - `max_age`: seconds since the rollout ended.
    """

    split: str | None = None
    model: str | None = None
    policy_version: str | None = None
    min_policy_version: float | None = None
    max_age: Annotated[float, Meta(gt=0)] | None = None

    def wants(self, facts: Facts) -> bool:
        """Whether a rollout is wanted."""
        return (
            self.split in (None, facts.split)
            and (self.model is None or self.model in facts.models)
            and self.policy_version in (None, facts.policy_version)
            and (self.min_policy_version is None or _number(facts.policy_version) >= self.min_policy_version)
            and (self.max_age is None or time.time() - facts.ended_at <= self.max_age)
        )


class SelectionOptions(TypedDict, total=False):
    """The fields of a Selection as arguments."""

    split: str | None
    model: str | None
    policy_version: str | None
    min_policy_version: float | None
    max_age: float | None


def facts_of(trajectory: Trajectory) -> Facts:
    """What a trajectory says."""
    versions = trajectory.policy_version
    return Facts(
        split=trajectory.split,
        models=tuple({call.request_model: None for call in trajectory.calls if call.request_model is not None}),
        policy_version=None if versions is None else versions.first,
        ended_at=time.time() if trajectory.ended_at is None else trajectory.ended_at / 1e9,
    )


def _number(version: str | None) -> float:
    try:
        return float("-inf") if version is None else float(version)
    except ValueError:
        return float("-inf")
