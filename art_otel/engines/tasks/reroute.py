"""Reroute: records of traces that belong with a trace of another slot are copied there.

Invariant: every record of a moved trace is copied once. The records stay where they were too, and whoever assembles
that slot passes over them.
"""

import msgspec

from art_otel.engines.shards import Membership, Shards, Shuffled, ShuffleFile, ShuffleWriter, hash_of


class RerouteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots that traces leave; `targets` says for each such trace to which slot."""

    slots: tuple[int, ...]
    targets: dict[str, int]
    files: tuple[ShuffleFile, ...]
    slot_count: int
    scratch: str


def reroute(task: RerouteTask) -> Shuffled:
    """Copy the records of the traces that leave."""
    hashes = frozenset(map(hash_of, task.targets))
    writer = ShuffleWriter(task.scratch, task.slot_count)
    for entry in Shards(task.files, task.slots).entries(task.slots):
        if entry.trace_hash in hashes and not isinstance(record := entry.record(), Membership):
            target = task.targets.get(record.trace_id or "")
            if target is not None:
                writer.put(target, record)
    return writer.finish()
