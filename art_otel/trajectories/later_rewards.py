"""Later rewards: what `art_otel.reward` gave to a trajectory, or to a call of one, that this process has in hand.

A trajectory is a record and stays as it is. So the rewards wait here, by trace, until trajectories are learned from or
written: `art_otel.batches` and all others that take trajectories in memory see them with these rewards.

Memory: the rewards of the last `_MOST` traces. Older ones are in the recording alone, as any reward given later.
"""

from collections import OrderedDict
from threading import Lock
from typing import Final, TypeAlias

from art_otel.trajectories.model import Call, Reward, Trajectory, with_rewards

_JudgedRollout: TypeAlias = tuple[str, int | None]
"""The rollout id and attempt of what was judged as a whole."""

_MOST: Final = 65_536
_by_trace: Final[OrderedDict[str, list[tuple[_JudgedRollout | None, Reward]]]] = OrderedDict()
_lock: Final = Lock()


def note_later_reward(judged: Trajectory | Call, reward: Reward) -> None:
    """Keep a reward for whoever learns from the trajectory, or from that of the call."""
    owner = (judged.rollout_id, judged.attempt) if isinstance(judged, Trajectory) else None
    with _lock:
        _by_trace.setdefault(judged.trace_id, []).append((owner, reward))
        _by_trace.move_to_end(judged.trace_id)
        while len(_by_trace) > _MOST:
            _by_trace.popitem(last=False)


def with_later_rewards(trajectory: Trajectory) -> Trajectory:
    """The trajectory with the rewards that were given to it, and to its calls, since it was made."""
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
