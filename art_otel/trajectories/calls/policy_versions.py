"""PolicyVersions: which weights sampled what.

Invariant: a version is what the call or its rollout says; that of one call is never taken for another's.
"""

from collections.abc import Iterable, Sequence

import msgspec

from art_otel.calls import InferenceCall
from art_otel.trajectories.model import PolicyVersions, Trajectory


def with_versions(calls: Iterable[InferenceCall], of_rollout: str | None) -> tuple[InferenceCall, ...]:
    """The calls, those that say no version with what their rollout says."""
    if of_rollout is None:
        return tuple(calls)
    return tuple(
        call if call.policy_version is not None else msgspec.structs.replace(call, policy_version=of_rollout)
        for call in calls
    )


def first_and_last(calls: Iterable[InferenceCall], of_rollout: str | None) -> PolicyVersions | None:
    """The versions of the first and last call that has one; what the rollout says where none has."""
    versions = [call.policy_version for call in calls if call.policy_version is not None]
    if not versions and of_rollout is not None:
        versions = [of_rollout]
    return PolicyVersions(first=versions[0], last=versions[-1]) if versions else None


def version_of(trajectory: Trajectory, call: InferenceCall) -> str | None:
    """The version that a call of a trajectory was sampled by, None where it is unknown.

    Where no call has a version, it is the rollout's first. If some call has a version, calls without one stay unknown.
    """
    if call.policy_version is not None or trajectory.policy_version is None or _says_any(trajectory.calls):
        return call.policy_version
    return trajectory.policy_version.first


def versions_in(trajectory: Trajectory) -> set[str | None]:
    """The versions of the rollout and of every call; with None where one is unknown.

    A call that failed before anything was sampled needs none.
    """
    versions = trajectory.policy_version
    of_rollout: set[str | None] = set() if versions is None else {versions.first, versions.last}
    if of_rollout and not _says_any(trajectory.calls):
        return of_rollout
    sampling = {turn.call for turn in trajectory.turns}
    of_calls = {
        call.policy_version
        for position, call in enumerate(trajectory.calls)
        if call.policy_version is not None or position in sampling or not call.failed
    }
    return of_rollout | of_calls


def first_and_last_known(trajectory: Trajectory) -> PolicyVersions | None:
    """The rollout's versions; None where that of a call is unknown, which may be any."""
    return None if None in versions_in(trajectory) else trajectory.policy_version


def _says_any(calls: Sequence[InferenceCall]) -> bool:
    return any(call.policy_version is not None for call in calls)
