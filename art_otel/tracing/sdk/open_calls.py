"""OpenCalls: calls whose answer the app has begun to read, by their rollouts.

Invariant: a stream that the app let go of ends its call before its rollout ends. openai's streams refer to themselves,
so that one that was left without `close()` is closed only by Python's garbage collector; that is asked then, of all
objects, because a stream that was read for a while is no young one. One that somebody still holds is left to him.
"""

import gc
from collections import Counter
from typing import Final

_open: Final[Counter[str]] = Counter()


def begin(rollout_id: str) -> None:
    """An answer of the rollout begins."""
    _open[rollout_id] += 1


def end(rollout_id: str) -> None:
    """An answer of the rollout is over."""
    _open[rollout_id] -= 1
    if _open[rollout_id] <= 0:
        _open.pop(rollout_id, None)  # two calls of other threads may end at once


def close_dropped(rollout_id: str) -> None:
    """Close the streams of the rollout that nobody holds any more."""
    if rollout_id in _open:
        gc.collect()
