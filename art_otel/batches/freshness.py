"""Freshness: whether the policy that sampled a trajectory is near enough to the one that is trained.

Invariant: what is unknown is never fresh where somebody asked for freshness.
"""

import re
from dataclasses import dataclass
from typing import Final

from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory, versions_in

_LAST_NUMBER: Final = re.compile(r"(?<!\d)(\d{1,18})\D*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Freshness:
    """With `max_staleness`, each of a trajectory's policy versions may be so many versions behind `policy_version`.

    Versions are compared by the last number in them: 12 of `12`, `step-12` and `qwen:0012`. Without `max_staleness`,
    `policy_version` must be that of every call. Where no call has a version all have the rollout's. Raises UsageError
    for a `max_staleness` that is negative or has nothing to compare with.
    """

    policy_version: str | None = None
    max_staleness: int | None = None

    def __post_init__(self) -> None:
        if self.max_staleness is None:
            return
        if self.max_staleness < 0 or self.policy_version is None or _number(self.policy_version) is None:
            raise UsageError(
                f"max_staleness={self.max_staleness!r} with policy_version={self.policy_version!r}: "
                "say which version is trained now, with a number in it, and how many versions one may be behind"
            )

    def reason_against(self, trajectory: Trajectory) -> str | None:
        """Why the trajectory is left out; None when it is not."""
        if self.policy_version is None:
            return None
        found = versions_in(trajectory)
        versions = {version for version in found if version is not None}
        if not versions or None in found:
            return "no policy version"
        if self.max_staleness is None:
            return None if versions == {self.policy_version} else "another policy version"
        newest, numbers = _number(self.policy_version), [_number(version) for version in versions]
        known = [number for number in numbers if number is not None]
        if newest is None or len(known) < len(numbers):
            return "policy version without a number"
        return "stale" if newest - min(known) > self.max_staleness else None


def _number(version: str) -> int | None:
    found = _LAST_NUMBER.search(version)
    return None if found is None else int(found[1])
