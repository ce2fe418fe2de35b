"""Placement: which traces are assembled together, and in which slot: that of the smallest of them.

Invariant: traces that share a rollout id are linked, and so are those that are linked to one trace. The smallest id of
linked traces stands for all of them, so the outcome does not depend on the order of the edges. A slot names every trace
that is there or goes there and is linked to a smaller one. Tasks read what their slots name, so only who plans has
all of them, with 100 bytes a trace at most: of a million rollouts a hundred thousand may have traces to be linked.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from art_otel.engines.shuffle import Membership, Shards, Shuffle, ShuffleCatalog, ShuffleWriter, hash_of

_ID_BYTES: Final = 16


class Links:
    """Traces, and for each the smallest that it is linked to: a disjoint set.

    An edge is the bytes of two trace ids; several may stand in one value.
    """

    def __init__(self, edges: Iterable[bytes]) -> None:
        self._parents: dict[bytes, bytes] = {}
        for several in edges:
            for at in range(0, len(several), 2 * _ID_BYTES):
                middle = at + _ID_BYTES
                self._join(several[at:middle], several[middle : middle + _ID_BYTES])

    def __len__(self) -> int:
        return len(self._parents)

    def linked(self) -> Iterator[tuple[bytes, bytes]]:
        """The traces that are linked to a smaller one, each with the smallest."""
        for trace in self._parents:
            if (root := self._root(trace)) != trace:
                yield trace, root

    def _join(self, first: bytes, second: bytes) -> None:
        low, high = sorted((self._root(first), self._root(second)))
        self._parents[high] = low

    def _root(self, trace: bytes) -> bytes:
        parents = self._parents
        parent = parents.setdefault(trace, trace)
        while parent != trace:
            parents[trace] = parents[parent]
            trace, parent = parents[trace], parents[parents[trace]]
        return trace


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where linked traces go: each, with its representative, is named in its own slot and in that of the other."""

    files: ShuffleCatalog
    slots: int

    def slot_of(self, trace_id: str) -> int:
        """The slot of a trace."""
        return hash_of(trace_id) % self.slots

    def representatives(self, slots: Collection[int]) -> dict[str, str]:
        """For each linked trace of these slots, or that comes to them, the smallest that it is linked to."""
        records = Shards(self.files.files_with(slots), slots).records(slots)
        return {record.trace_id: record.name for record in records if isinstance(record, Membership)}

    def leaving(self, slots: Collection[int]) -> dict[str, int]:
        """The traces that leave these slots, with their new ones."""
        wanted = frozenset(slots)
        targets = {trace: self.slot_of(first) for trace, first in self.representatives(wanted).items()}
        return {trace: to for trace, to in targets.items() if (slot := self.slot_of(trace)) in wanted and slot != to}


def place(edges: Sequence[bytes], slots: int, folder: str) -> tuple[Placement, list[int]]:
    """Write down where linked traces go. Also gives the slots that any of them leaves."""
    digest = hashlib.sha256()
    for several in edges:
        digest.update(several)
    writer = ShuffleWriter(folder, slots, f"placement-{digest.hexdigest()[:32]}")  # the same where a conversion goes on
    leaving: set[int] = set()
    for trace, representative in Links(edges).linked():
        record = Membership(representative.hex(), trace.hex())
        slot, target = hash_of(record.trace_id) % slots, hash_of(record.name) % slots
        for region in {slot, target}:
            writer.put(region, record)
        if slot != target:
            leaving.add(slot)
    return Placement(files=Shuffle([writer.finish()]).write_catalog(folder), slots=slots), sorted(leaving)
