"""Reroute: records of traces that belong with a trace of another slot are copied there.

Invariant: every record of a moved trace is copied once. The records stay where they were too, and whoever assembles
that slot passes over them.
"""

import msgspec

from art_otel.engines.planning.placement import Placement
from art_otel.engines.shards import Shards, ShuffleCatalog, Shuffled, ShuffleWriter


class RerouteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots that traces leave; `placement` says where to."""

    slots: tuple[int, ...]
    placement: Placement
    files: ShuffleCatalog
    scratch: str


def reroute(task: RerouteTask) -> Shuffled:
    """Copy the records of the traces that leave."""
    writer = ShuffleWriter(task.scratch, task.placement.slots)
    targets = task.placement.leaving(task.slots)
    for record in Shards(task.files.files_with(task.slots), task.slots).records(task.slots):
        target = targets.get(record.trace_id or "")
        if target is not None:
            writer.put(target, record)
    return writer.finish()
