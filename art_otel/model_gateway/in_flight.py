"""Calls in flight: the calls that a worker has begun and not recorded, in memory that outlives the worker.

Invariant: a call is in the table from its beginning until its span is in the spool. So when a worker dies, its parent
knows each call that no span will tell of.

    slot   | length, 2 bytes | start in ns, 8 bytes | attempt, 4 bytes | rollout id, UTF-8 |      length 0: free
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_SLOT: Final = 2 + 8 + 4 + 1024
"""Bytes; a rollout's id has at most 256 characters."""

_MOST: Final = (1 << 32) - 1
_SLOTS: Final = 4096
"""As many as a server has connections."""


class CallInFlight(NamedTuple):
    """A call of an attempt at a rollout, which began at `start_ns`."""

    rollout_id: str
    attempt: int
    start_ns: int


class CallsInFlight:
    """The table in a file, which both processes map into their memory: to write to it takes no call of the system."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_SLOTS * _SLOT)
            self._memory = mmap.mmap(file.fileno(), _SLOTS * _SLOT)
        self._free = list(range(_SLOTS))

    def begin(self, call: CallInFlight) -> int | None:
        """Note a call, and give its slot; None where all are taken."""
        if not self._free:
            return None
        slot = self._free.pop()
        at = slot * _SLOT
        facts = (
            call.start_ns.to_bytes(8) + min(call.attempt, _MOST).to_bytes(4) + call.rollout_id.encode(errors="replace")
        )
        self._memory[at + 2 : at + 2 + len(facts)] = facts
        self._memory[at : at + 2] = len(facts).to_bytes(2)  # last: what is half written is no call
        return slot

    def end(self, slot: int) -> None:
        """Forget a call that was recorded."""
        self._memory[slot * _SLOT : slot * _SLOT + 2] = b"\0\0"
        self._free.append(slot)

    def take(self) -> Iterator[CallInFlight]:
        """The calls of a worker that has died, which are forgotten then."""
        for at in range(0, _SLOTS * _SLOT, _SLOT):
            if length := int.from_bytes(self._memory[at : at + 2]):
                facts = self._memory[at + 2 : at + 2 + length]
                yield CallInFlight(facts[12:].decode(), int.from_bytes(facts[8:12]), int.from_bytes(facts[:8]))
                self._memory[at : at + 2] = b"\0\0"
