"""Placement: which traces are assembled together, and in which slot: that of the smallest of them.

Invariant: traces that share a rollout id are linked, and so are those that are linked to one trace. The smallest id of
linked traces stands for all of them, so the outcome does not depend on the order of the edges. A slot names every trace
that is there or goes there and is linked to a smaller one. Tasks read what their slots name, so only who plans has
all of them, with 100 bytes a trace at most: of a million rollouts a hundred thousand may have traces to be linked.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from art_otel.engines.shuffle import Membership, Shards, Shuffle, ShuffleCatalog, ShuffleWriter, hash_of

ID_BYTES: Final = 16


class Links:
    """Traces, numbered, and for each the smallest that it is linked to.

    An edge is two trace ids, `ID_BYTES` each; several may stand in one value.
    """

    def __init__(self, edges: Iterable[bytes]) -> None:
        self._ids = memoryview(b"")
        self._parents = array("i")
        if pieces := [piece for piece in edges if piece]:
            self._link(pieces)

    def __len__(self) -> int:
        return len(self._parents)

    def trace_id(self, number: int) -> bytes:
        """The id of a trace."""
        return bytes(self._ids[ID_BYTES * number : ID_BYTES * (number + 1)])

    @property
    def digest(self) -> str:
        """A name for these links."""
        return sha256(bytes(self._parents) + self._ids).hexdigest()[:32]

    def linked(self) -> Iterator[tuple[int, int]]:
        """The traces that are linked to a smaller one, each with the smallest."""
        for number in range(len(self)):
            if (root := self._root(number)) != number:
                yield number, root

    def _link(self, pieces: Sequence[bytes]) -> None:
        import pyarrow as pa  # noqa: PLC0415 # slow to load, and most conversions link nothing
        from pyarrow.compute import dictionary_encode  # noqa: PLC0415 # pyright: ignore[reportAttributeAccessIssue] # made at run time

        ids = pa.binary(ID_BYTES)
        ends = [pa.Array.from_buffers(ids, len(piece) // ID_BYTES, [None, pa.py_buffer(piece)]) for piece in pieces]
        # The system's pool gives back what a growing table leaves; the usual one would keep a third more.
        encoded = dictionary_encode(pa.chunked_array(ends), memory_pool=pa.system_memory_pool())
        dictionary = encoded.chunk(0).dictionary  # all pieces have one
        self._ids = memoryview(dictionary.buffers()[1])
        self._parents = array("i", range(len(dictionary)))
        for piece in encoded.chunks:
            numbers = memoryview(piece.indices.buffers()[1]).cast("i")
            for at in range(0, len(piece), 2):
                self._join(numbers[at], numbers[at + 1])

    def _join(self, first: int, second: int) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            low, high = sorted((first, second), key=self.trace_id)
            self._parents[high] = low

    def _root(self, number: int) -> int:
        parents = self._parents
        while (parent := parents[number]) != number:
            parents[number] = parents[parent]
            number = parents[number]
        return number


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
        targets = {trace: self.slot_of(first) for trace, first in self.representatives(slots).items()}
        return {trace: to for trace, to in targets.items() if (slot := self.slot_of(trace)) in slots and slot != to}


def place(links: Links, slots: int, folder: str) -> tuple[Placement, list[int]]:
    """Write down where linked traces go. Also gives the slots that any of them leaves."""
    writer = ShuffleWriter(folder, slots, f"placement-{links.digest}")  # a conversion that goes on writes the same
    leaving: set[int] = set()
    for number, representative in links.linked():
        record = Membership(links.trace_id(representative).hex(), links.trace_id(number).hex())
        slot, target = hash_of(record.trace_id) % slots, hash_of(record.name) % slots
        for region in {slot, target}:
            writer.put(region, record)
        if slot != target:
            leaving.add(slot)
    return Placement(files=Shuffle([writer.finish()]).write_catalog(folder), slots=slots), sorted(leaving)
