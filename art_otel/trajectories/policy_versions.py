"""Policy versions: which weights sampled a call, and which sampled a rollout.

Invariant: what nobody said is unknown and may be any version. A call of a rollout that says one has its own, else the
rollout's; if some call of a rollout says one, calls without one stay unknown.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from art_otel.calls import CallRecord, InferenceCall
from art_otel.trajectories.model import Call, PolicyVersions, Trajectory


def with_versions(calls: Iterable[InferenceCall], of_rollout: str | None) -> tuple[InferenceCall, ...]:
    """The calls, those that say no version with what their rollout says."""
    if of_rollout is None:
        return tuple(calls)
    return tuple(
        call if call.policy_version is not None else replace(call, policy_version=of_rollout) for call in calls
    )


def _versions_of(call: InferenceCall | Call) -> list[str | None]:
    """The versions that sampled a call's completions, from its first token to its last."""
    spans = [span.version for choice in call.choices or () for span in choice.weight_versions or ()]
    return [call.policy_version, *spans, call.policy_version_end]


def first_and_last(calls: Iterable[Call], of_rollout: str | None) -> PolicyVersions | None:
    """The versions of the first and last call that has one; what the rollout says where none has."""
    versions = [version for call in calls for version in _versions_of(call) if version is not None]
    if not versions and of_rollout is not None:
        versions = [of_rollout]
    return PolicyVersions(first=versions[0], last=versions[-1]) if versions else None


def version_of(trajectory: Trajectory, call: CallRecord) -> str | None:
    """The version that a call of a trajectory was sampled by, None where it is unknown.

    Where no call has a version, it is the rollout's first. If some call has a version, calls without one stay unknown.
    """
    if call.policy_version is not None or trajectory.policy_version is None or _says_any(trajectory.calls):
        return call.policy_version
    return trajectory.policy_version.first


def versions_in(trajectory: Trajectory, without: AbstractSet[int] = frozenset()) -> set[str | None]:
    """The versions of the rollout, of every call and of what it sampled; with None where one is unknown.

    A call that failed before anything was sampled needs none. Of calls at the positions `without` none counts.
    """
    versions = trajectory.policy_version
    of_rollout: set[str | None] = set() if versions is None else {versions.first, versions.last}
    if of_rollout and not _says_any(trajectory.calls):
        return of_rollout
    if without:
        of_rollout = set()  # they are those of all calls
    turns = [turn for turn in trajectory.turns if turn.call not in without]
    calls = {position: call for position, call in enumerate(trajectory.calls) if position not in without}
    sampling = {turn.call for turn in turns}
    with_versions = {turn.call for turn in turns if turn.weight_versions}
    of_tokens = {span.version for turn in turns for span in turn.weight_versions or ()}
    of_calls = {
        call.policy_version
        for position, call in calls.items()
        if call.policy_version is not None
        or (position not in with_versions and (position in sampling or not call.failed))
    }
    at_ends = {call.policy_version_end for call in calls.values() if call.policy_version_end is not None}
    return of_rollout | of_calls | at_ends | of_tokens


def first_and_last_known(trajectory: Trajectory) -> PolicyVersions | None:
    """The rollout's versions; None where that of a call is unknown, which may be any."""
    return None if None in versions_in(trajectory) else trajectory.policy_version


def _says_any(calls: Sequence[CallRecord]) -> bool:
    return any(call.policy_version is not None for call in calls)
