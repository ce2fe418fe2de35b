"""GroupIndex: the number by which ART knows the group of a trajectory.

Invariant: the number follows from the trajectory alone, so no other row has to be looked at. Trajectories of one group
and training step have equal numbers; a trajectory without a group is a group of its own.
"""

import json
from hashlib import blake2b

from art_otel.trajectories import Trajectory


def group_index(trajectory: Trajectory) -> int:
    """The first 63 bits of the BLAKE2b digest (64 bytes) of the group's key.

    The key is a compact JSON list in UTF-8: `[training_step,group_id]`, without a group
    `[rollout_id,attempt,trace_id,started_at]`. Raises ValueError for text that UTF-8 cannot hold.
    """
    if trajectory.group_id is None:
        key = [trajectory.rollout_id, trajectory.attempt, trajectory.trace_id, trajectory.started_at]
    else:
        key = [trajectory.training_step, trajectory.group_id]
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode()).digest()[:8], "big") >> 1
