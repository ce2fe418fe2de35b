"""Policy versions: which weights sampled a trajectory, and each of its calls."""

from collections.abc import Sequence

from art_otel.calls import CallRecord
from art_otel.trajectories.model import PolicyVersions, Trajectory


def version_of(trajectory: Trajectory, call: CallRecord) -> str | None:
    """The policy version that sampled a call of a trajectory; None if it is unknown.

    If no call has a version, it is the rollout's first version. If some have, the others stay unknown.
    """
    if call.policy_version is not None or trajectory.policy_version is None or _says_any(trajectory.calls):
        return call.policy_version
    return trajectory.policy_version.first


def versions_in(trajectory: Trajectory) -> set[str | None]:
    """All policy versions of the rollout, its calls and their tokens; with None among them if one is unknown.

    A failed call that sampled nothing needs no version.
    """
    versions = trajectory.policy_version
    of_rollout: set[str | None] = set() if versions is None else {versions.first, versions.last}
    if of_rollout and not _says_any(trajectory.calls):
        return of_rollout
    turns, calls = trajectory.turns, trajectory.calls
    sampling = {turn.call for turn in turns}
    with_versions = {turn.call for turn in turns if turn.weight_versions}
    of_tokens = {span.version for turn in turns for span in turn.weight_versions or ()}
    of_calls = {
        call.policy_version
        for position, call in enumerate(calls)
        if call.policy_version is not None
        or (position not in with_versions and (position in sampling or not call.failed))
    }
    at_ends = {call.policy_version_end for call in calls if call.policy_version_end is not None}
    return of_rollout | of_calls | at_ends | of_tokens


def first_and_last_known(trajectory: Trajectory) -> PolicyVersions | None:
    """The rollout's first and last version; None if the version of any call is unknown, as it may be older or newer."""
    return None if None in versions_in(trajectory) else trajectory.policy_version


def _says_any(calls: Sequence[CallRecord]) -> bool:
    return any(call.policy_version is not None for call in calls)
