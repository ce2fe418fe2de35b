"""Merge: kept shuffle files become two, one of records and one of outcomes, with less in them.

Invariant: nothing that a later round needs is lost: a trace keeps its last outcome, and its records until it is closed;
names of rollouts, and rewards that name no trace, stay.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from art_otel.engines.shards import GivenRow, Membership, Outcome, Shards, ShuffleCatalog, Shuffled, ShuffleWriter

Moved = Mapping[str, Mapping[int, tuple[str, int]]]
"""Where rows are now: by the name of the part where they were, and their number there."""


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Regions of kept files to merge.

    With a `horizon` these are all files that are kept, and what nothing came of since then (ns) is left out, but for
    what says that it is closed. `moved` rows are written with their new part and row.
    """

    regions: tuple[int, ...]
    records: ShuffleCatalog
    outcomes: ShuffleCatalog
    horizon: int | None = None
    moved: dict[str, dict[int, tuple[str, int]]] = {}
    slots: int
    scratch: str


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge task wrote."""

    records: Shuffled
    outcomes: Shuffled

    def is_intact(self) -> bool:
        """Whether the files are there as they were written."""
        return self.records.is_intact() and self.outcomes.is_intact()


def merge(task: MergeTask) -> Merged:
    """Merge the files."""
    records, outcomes = ShuffleWriter(task.scratch, task.slots), ShuffleWriter(task.scratch, task.slots)
    kept, decided = (Shards(one.files_with(task.regions), task.regions) for one in (task.records, task.outcomes))
    for region in task.regions:
        closed: set[str] = set()
        for outcome in _last(decided.records((region,))):
            if task.horizon is not None and outcome.is_over(task.horizon):
                closed.add(outcome.trace_id)
                if outcome.state != "nothing":
                    outcomes.put(region, msgspec.structs.replace(outcome, state="closed", rows=()))
            else:
                rows = tuple(_moved(outcome.rows, task.moved))
                outcomes.put(region, msgspec.structs.replace(outcome, rows=rows))
        names: set[Membership] = set()
        for record in kept.records((region,)):
            if isinstance(record, Membership):
                if record in names:
                    continue
                names.add(record)
            if region < 0 or record.trace_id not in closed:
                records.put(region, record)
    return Merged(records=records.finish(), outcomes=outcomes.finish())


def _last(outcomes: Iterable[object]) -> Iterable[Outcome]:
    """The last outcome of each trace."""
    last: dict[str, Outcome] = {}
    for outcome in outcomes:
        if isinstance(outcome, Outcome):
            earlier = last.get(outcome.trace_id)
            if earlier is None or earlier.round < outcome.round:
                last[outcome.trace_id] = outcome
    return last.values()


def _moved(rows: Iterable[GivenRow], moved: Moved) -> Iterator[GivenRow]:
    for row in rows:
        new_position = moved.get(row.part, {}).get(row.row)
        yield row if new_position is None else msgspec.structs.replace(row, part=new_position[0], row=new_position[1])
