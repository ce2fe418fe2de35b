"""Later rewards: rewards that `art_otel.reward` gave to a finished trajectory, or to a call of it, in this process.

    trajectory = await art_otel.gather_trajectory(agent())      a frozen record
    art_otel.reward(0.7, target=trajectory)                     kept here, by trace
    art_otel.batches([trajectory])                              sees the reward (`with_later_rewards`)

A reward may also name a rollout or a response by id, if this process gathered or received it.

Invariant: bounded memory. Kept are the rewards of the last `_MOST` traces and the last `_MOST_IDS` ids of rollouts and
of responses. Older rewards are only in the recording.
"""

from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple, TypeAlias, TypeVar

from art_otel.trajectories.model import Call, Reward, Trajectory, with_rewards

_JudgedRollout: TypeAlias = tuple[str, int | None]
"""The rollout id and attempt of a rollout that was judged as a whole."""


class GatheredRollout(NamedTuple):
    """The key of a trajectory that this process has."""

    rollout_id: str
    attempt: int | None
    trace_id: str


class GatheredCall(NamedTuple):
    """The key of a call of a trajectory that this process has, and the index of the step around the call."""

    rollout_id: str
    attempt: int | None
    trace_id: str
    span_id: str
    step: int | None


_GatheredT = TypeVar("_GatheredT", GatheredRollout, GatheredCall)

_MOST: Final = 65_536
_MOST_IDS: Final = 16_384
_rollouts: Final[OrderedDict[str, set[GatheredRollout]]] = OrderedDict()
"""By rollout id."""
_calls: Final[OrderedDict[tuple[str | None, str], set[GatheredCall]]] = OrderedDict()
"""By response id, in all rollouts (None) and in each."""
_by_trace: Final[OrderedDict[str, list[tuple[_JudgedRollout | None, Reward]]]] = OrderedDict()
_lock: Final = Lock()


def note_gathered(trajectory: Trajectory) -> None:
    """Note the ids of a trajectory that this process gathered or received, so that later rewards can name them."""
    rollout = GatheredRollout(trajectory.rollout_id, trajectory.attempt, trajectory.trace_id)
    with _lock:
        _add(_rollouts.setdefault(rollout.rollout_id, set()), rollout)
        noted: set[GatheredCall] = set()
        for call in trajectory.calls:
            if call.response_id is not None:
                gathered = GatheredCall(rollout.rollout_id, rollout.attempt, call.trace_id, call.span_id, call.step)
                noted.add(gathered)
                for owner in (None, rollout.rollout_id):
                    same_id = _calls.setdefault((owner, call.response_id), set())
                    # In a new revision of the trajectory the call may have another span or step: the old key goes.
                    same_id -= {one for one in same_id - noted if one[:3] == gathered[:3]}
                    _add(same_id, gathered)
        for kept in (_rollouts, _calls):
            while len(kept) > _MOST_IDS:
                kept.popitem(last=False)


def _add(same_id: set[_GatheredT], gathered: _GatheredT) -> None:
    """Add a key, but no third one: a server may give all answers one id."""
    if len(same_id) < 2:  # two keys already show that the id is ambiguous
        same_id.add(gathered)


def find_gathered(rollout_id: str | None, response_id: str | None) -> frozenset[GatheredRollout | GatheredCall]:
    """Find the gathered calls with a response id, in the named rollout or in all; without a response id, the rollouts.

    Returns at most two of them, which is enough to see that the id is ambiguous.
    """
    with _lock:
        if response_id is None:
            return frozenset(_rollouts.get(rollout_id or "", ()))
        return frozenset(_calls.get((rollout_id, response_id), ()))


def note_later_reward(judged: Trajectory | Call | GatheredRollout | GatheredCall, reward: Reward) -> None:
    """Keep a reward of a trajectory or of a call, for `with_later_rewards`."""
    owner = (judged.rollout_id, judged.attempt) if isinstance(judged, Trajectory | GatheredRollout) else None
    with _lock:
        _by_trace.setdefault(judged.trace_id, []).append((owner, reward))
        _by_trace.move_to_end(judged.trace_id)
        while len(_by_trace) > _MOST:
            _by_trace.popitem(last=False)


def with_later_rewards(trajectory: Trajectory) -> Trajectory:
    """The trajectory with the rewards that were given to it and to its calls after it was made."""
    if not _by_trace:
        return trajectory
    calls = {call.span_id: call for call in trajectory.calls}
    given: list[Reward] = []
    for trace_id in {trajectory.trace_id, *(call.trace_id for call in trajectory.calls)} & _by_trace.keys():
        for owner, reward in list(_by_trace.get(trace_id, ())):
            call = calls.get(reward.target or "") if owner is None else None
            is_of_call = call is not None and call.trace_id == trace_id
            if is_of_call or owner == (trajectory.rollout_id, trajectory.attempt):
                given.append(reward)
    return with_rewards(trajectory, *given) if given else trajectory
