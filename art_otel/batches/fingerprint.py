"""Fingerprint: what tells one dataset from another, so that no state is gone on with in the wrong one.

Invariant: it follows from the files' names and sizes, and from all of each trajectory that options look at: its ids,
what it was worth, whether it is whole. It is not about times of change and folders, so that a copy has the same.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from art_otel.batches.chunks import Chunk
from art_otel.store import RowGroup
from art_otel.trajectories import Trajectory


class Fingerprint:
    """Show it every chunk, and the outline of every trajectory, in their order."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def chunk(self, chunk: Chunk) -> None:
        """Note where trajectories stand."""
        stored = chunk.stored
        if isinstance(stored, RowGroup):
            size = 0 if chunk.version is None else chunk.version[0]
            self._note((Path(stored.file).name, size, stored.index))
        self._note((chunk.rows,))

    def trajectory(self, one: Trajectory) -> None:
        """Note what it is."""
        judged = (one.status, one.complete, one.split, one.group_id, one.training_step, one.policy_version)
        self._note((one.order, judged, one.reward, one.rewards))
        self._note((call.step, call.policy_version) for call in one.calls)

    def text(self) -> str:
        """What a state keeps."""
        return self._digest.hexdigest()

    def _note(self, values: Iterable[object]) -> None:
        self._digest.update(repr(tuple(values)).encode())
