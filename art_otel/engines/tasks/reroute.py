"""Reroute: records of traces that belong with a trace of another slot are copied there.

Invariant: every record of a moved trace is copied once. The records stay where they were too, and whoever assembles
that slot passes over them.
"""

import msgspec

from art_otel.engines.shards import Shards, Shuffled, ShuffleFile, ShuffleWriter


class RerouteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots that traces leave; `targets` says for each such trace to which slot."""

    slots: tuple[int, ...]
    targets: dict[str, int]
    files: tuple[ShuffleFile, ...]
    slot_count: int
    scratch: str


def reroute(task: RerouteTask) -> Shuffled:
    """Copy the records of the traces that leave."""
    writer = ShuffleWriter(task.scratch, task.slot_count)
    for record in Shards(task.files, task.slots).records(task.slots):
        target = task.targets.get(record.trace_id or "")
        if target is not None:
            writer.put(target, record)
    return writer.finish()
