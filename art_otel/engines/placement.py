"""Placement: which traces are assembled together, and in which slot: that of the smallest of them.

Invariant: traces that share a rollout id are linked, and so are those that are linked to one trace. The smallest id of
linked traces stands for all of them, so the outcome does not depend on the order of the edges. A slot's part of the
file names every trace that stands there or goes there and is linked to a smaller one. Tasks read the parts of their
slots, so nobody but who writes the file has all of them, with 100 bytes a trace at most: of a million rollouts a
hundred thousand may have traces to be linked.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from art_otel import storage
from art_otel.engines.shuffle import hash_of

ID_BYTES: Final = 16

_ROW: Final = 2 * ID_BYTES
"""A trace and its representative."""

_OFFSETS: Final = "Q"


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
    """Where the file is, None where no traces are linked: for each of `slots` where its rows begin, then the rows."""

    location: str | None
    slots: int

    def slot_of(self, trace_id: str) -> int:
        """The slot of a trace."""
        return hash_of(trace_id) % self.slots

    def representatives(self, slots: Iterable[int]) -> dict[str, str]:
        """For each linked trace of these slots the smallest that it is linked to."""
        wanted = sorted(slots)
        if self.location is None or not wanted:
            return {}
        header = array(_OFFSETS)
        header.frombytes(storage.read(self.location, 0, header.itemsize * (self.slots + 1)))
        begin, end = header[wanted[0]], header[wanted[-1] + 1]
        rows = storage.read(self.location, begin, end)  # neighboring slots, mostly
        linked: dict[str, str] = {}
        for slot in wanted:
            for at in range(header[slot] - begin, header[slot + 1] - begin, _ROW):
                linked[rows[at : at + ID_BYTES].hex()] = rows[at + ID_BYTES : at + _ROW].hex()
        return linked

    def leaving(self, slots: Iterable[int]) -> dict[str, int]:
        """The traces that leave these slots, with their new ones."""
        wanted = frozenset(slots)
        targets = {trace: self.slot_of(first) for trace, first in self.representatives(wanted).items()}
        return {trace: to for trace, to in targets.items() if (slot := self.slot_of(trace)) in wanted and slot != to}


def place(links: Links, slots: int, folder: str) -> tuple[Placement, list[int]]:
    """Write down where linked traces go. Also gives the slots that any of them leaves."""
    if not len(links):
        return Placement(location=None, slots=slots), []
    slot_of = array("I", (hash_of(links.trace_id(number).hex()) % slots for number in range(len(links))))
    counts: dict[int, int] = defaultdict(int)
    leaving: set[int] = set()
    for number, first in links.linked():
        slot, target = slot_of[number], slot_of[first]
        counts[slot] += 1
        if slot != target:
            counts[target] += 1
            leaving.add(slot)
    start = array(_OFFSETS).itemsize * (slots + 1)
    ends = array(_OFFSETS, accumulate((_ROW * counts[slot] for slot in range(slots)), initial=start))
    written = bytearray(ends[-1])
    written[:start] = ends.tobytes()
    for number, first in links.linked():
        row = links.trace_id(number) + links.trace_id(first)
        for slot in {slot_of[number], slot_of[first]}:
            written[ends[slot] : ends[slot] + _ROW] = row
            ends[slot] += _ROW
    location = storage.join(folder, f"placement-{hashlib.sha256(written).hexdigest()[:32]}")
    storage.write(location, written, synced=False)
    return Placement(location=location, slots=slots), sorted(leaving)
