"""Kept: what a dataset holds for later rounds: the records of rollouts that may go on, and what was made of them.

Invariant: the files that the manifest names are all that a round needs besides its inputs, and they are never changed.
A round adds a tier of them. Tiers that are not much larger than those behind them are merged, so their number grows
with the logarithm of the records. Nothing that a later round needs is lost by that: a trace keeps its last outcome, and
its records until it is closed; names of rollouts, and rewards that name no trace, stay.

Rows that no longer count are named by the manifest instead of rewriting the parts that hold them: measured with 20,000
rollouts, late spans of 1 % of them write 3 MB so, and 190 MB where parts are copied.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.local import Engine
from art_otel.engines.plan import Sizes, plan_regions
from art_otel.engines.rounds import Outcome
from art_otel.engines.shuffle import (
    Catalogued,
    Membership,
    Shards,
    Shuffle,
    ShuffleCatalog,
    Shuffled,
    ShuffleFile,
    ShuffleWriter,
)
from art_otel.engines.workspace import Workspace
from art_otel.errors import StoreError
from art_otel.sources.files.dataset_files import KEPT_PREFIX
from art_otel.store import Manifest
from art_otel.store.commit import KeptFile

_FACTOR: Final = 2
"""A tier is merged with those behind it when it has not more bytes than so many times theirs."""


class Tier(NamedTuple):
    """Files that one or several rounds wrote."""

    records: Shuffle
    outcomes: Shuffle

    @property
    def files(self) -> list[ShuffleFile]:
        """All files."""
        return [*self.records.files, *self.outcomes.files]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every round has in common."""

    slots: int
    rollout_spans: tuple[str, ...]
    rollout_traces: bool


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The index of what is kept: the records and the outcomes of each tier, the oldest first.

    `round` is the number of the last round, `horizon` the time before which traces are closed (ns). `open_since` says,
    for each slot in which something waits, when something last came of it.
    """

    settings: Settings
    round: int = 0
    horizon: int = 0
    open_since: dict[int, int] = {}
    tiers: tuple[tuple[Catalogued, Catalogued], ...] = ()

    def tiers_in(self, out: str) -> list[Tier]:
        """The tiers, in the dataset in this folder."""
        return [Tier(*(Shuffle.in_folder(one, out) for one in tier)) for tier in self.tiers]


_DECODER: Final = msgspec.msgpack.Decoder(Kept)


def read_kept(out: str, manifest: Manifest | None) -> Kept | None:
    """What the dataset of this manifest keeps; None where it keeps nothing."""
    if manifest is None or not manifest.kept:
        return None
    location = storage.join(out, manifest.kept[0])
    data = storage.read(location)
    if _index_name(data) != manifest.kept[0]:
        raise StoreError(f"{storage.shown(location)}: is not as it was written; convert everything anew")
    return _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))


def stage_kept(kept: Kept, tiers: Sequence[Tier], scratch: str) -> tuple[KeptFile, ...]:
    """Write the index of these tiers, and say which files become files of the dataset; the index is the first."""
    files = [KeptFile(_name_of(file), file.size, file.location) for tier in tiers for file in tier.files]
    named = tuple((tier.records.catalogued(_name_of), tier.outcomes.catalogued(_name_of)) for tier in tiers)
    data = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(msgspec.structs.replace(kept, tiers=named)))
    location = storage.join(scratch, _index_name(data))
    storage.write(location, data)
    return (KeptFile(_index_name(data), len(data), location), *files)


def _name_of(file: ShuffleFile) -> str:
    """The name that a shuffle file has in the dataset."""
    name = Path(file.location.partition("?")[0] if storage.is_url(file.location) else file.location).name
    return name if name.startswith(KEPT_PREFIX) else f"{KEPT_PREFIX}{name.removeprefix('shuffle-')}"


def _index_name(data: bytes) -> str:
    return f"{KEPT_PREFIX}index-{hashlib.sha256(data).hexdigest()[:32]}"


def count_to_merge(tiers: Sequence[Tier]) -> int:
    """How many of the last tiers are to become one; 1: none."""
    count, behind = 1, 0
    for number, tier in enumerate(reversed(tiers)):
        size = sum(file.size for file in tier.files)
        if number and size <= _FACTOR * behind:
            count = number + 1
        behind += size
    return count


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Regions of kept files to merge.

    With a `horizon` these are all files that are kept, and what nothing came of since then (ns) is left out, but for
    what says that it is closed. `moved` says where rows are now: by the name of the part where they were, and their
    number there.
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
    """Write the last outcome of each trace, and the records of those that are not closed."""
    records, outcomes = (ShuffleWriter(task.scratch, task.slots) for _ in range(2))
    kept, decided = (Shards(one.files_with(task.regions), task.regions) for one in (task.records, task.outcomes))
    for region in task.regions:
        closed: set[str] = set()
        for outcome in _last(decided.records((region,))):
            if task.horizon is not None and outcome.is_over(task.horizon):
                closed.add(outcome.trace_id)
                if outcome.state != "nothing":
                    outcomes.put(region, msgspec.structs.replace(outcome, state="closed", rows=()))
            else:
                for row in outcome.rows:
                    row.part, row.row = task.moved.get(row.part, {}).get(row.row, (row.part, row.row))
                outcomes.put(region, outcome)
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


def merge_tiers(
    workspace: Workspace,
    engine: Engine,
    sizes: Sizes,
    tiers: Sequence[Tier],
    *,
    horizon: int | None = None,
    moved: Mapping[str, Mapping[int, tuple[str, int]]] | None = None,
) -> Tier:
    """Make one tier of several: see MergeTask."""
    records, outcomes = (Shuffle.union(shuffles) for shuffles in zip(*tiers, strict=True))
    record_files, outcome_files = (one.write_catalog(workspace.folder) for one in (records, outcomes))
    together = (records | outcomes).sizes
    tasks = [
        MergeTask(
            regions=regions,
            records=record_files,
            outcomes=outcome_files,
            horizon=horizon,
            moved={part: dict(rows) for part, rows in (moved or {}).items()},
            slots=sizes.slots,
            scratch=workspace.folder,
        )
        for regions in plan_regions(together, together, sizes.part_bytes)
    ]
    merged = list(workspace.summaries(engine, merge, tasks, Merged))
    return Tier(Shuffle(one.records for one in merged), Shuffle(one.outcomes for one in merged))
