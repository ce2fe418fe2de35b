"""Placement: linked traces go to the slot of the smallest of them.

Invariant: a slot's part of the file names every trace that stands there or goes there and is linked to a smaller one.
Tasks read the parts of their slots, so nobody but who writes the file has all of them.
"""

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

import msgspec

from art_otel import storage
from art_otel.engines.planning.links import ID_BYTES, Links
from art_otel.engines.shards import hash_of

_ROW: Final = 2 * ID_BYTES
"""A trace and its representative."""

_OFFSETS: Final = "Q"


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
