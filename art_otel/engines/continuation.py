"""Continuation: what an incremental conversion takes up of those before it, and what it leaves for the next.

Each conversion into a dataset is a round. It reads what is new into shuffle files like those of earlier rounds, which
are kept beside the parts, and assembles again what it touches, by the same tasks, so that all rounds together give the
rows of one conversion; `decisions` says which rows a round adds and which no longer count.

Rows that no longer count are named by the manifest; the parts that hold them stay until they are compacted. Measured
with 20,000 rollouts: late spans of 1 % of them write 3 MB so, and 190 MB where parts are copied.

Invariant: a round has the settings of the rounds before it, or is refused by name. The files that the manifest names
are all that a round needs besides its inputs, and they are never changed. A dataset that keeps nothing, as after a full
conversion, has closed traces only: their rows stay as they are.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.plan import Job, Placement, Round, plan_regions
from art_otel.engines.shuffle import (
    ROLLOUT_REGIONS,
    Membership,
    Outcome,
    Shards,
    Shuffle,
    ShuffleCatalog,
    Shuffled,
    ShuffleFile,
    ShuffleWriter,
    region_of,
)
from art_otel.engines.tasks import AssembledPart
from art_otel.engines.workspace import Runner
from art_otel.errors import StoreError, UsageError
from art_otel.sources.files.inputs import KEPT_PREFIX
from art_otel.store import Manifest, read_manifest
from art_otel.store.commit import Addition, KeptFile

_FACTOR: Final = 2
"""A tier is merged with those behind it when it has not more bytes than so many times theirs."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When rollouts are given and closed, in seconds; `now` (ns) where it is not the clock that says it."""

    grace: float = 15 * 60.0
    retain: float = 30 * 24 * 3600.0
    now: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for times that do not fit."""
        if not 0 <= self.grace <= self.retain:
            raise UsageError(
                f"--grace {self.grace:g}s, --retain {self.retain:g}s: what waits is kept, so retain at least the grace"
            )


class Tier(NamedTuple):
    """Shuffle files that one or several rounds left: records, and what was made of them."""

    records: Shuffle
    outcomes: Shuffle

    @property
    def files(self) -> list[ShuffleFile]:
        """All files."""
        return [*self.records.files, *self.outcomes.files]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The index of what a dataset keeps for later rounds: the files of each tier, the oldest first.

    `slots`, `rollout_spans` and `rollout_traces` are settings that all rounds have in common. `round` is the number of
    the last round, `horizon` the time before which traces are closed (ns). `open_since` says, for each slot in which
    traces wait, the time of the one that waited longest.
    """

    slots: int
    rollout_spans: tuple[str, ...]
    rollout_traces: bool
    round: int = 0
    horizon: int = 0
    open_since: dict[int, int] = {}
    tiers: tuple[Tier, ...] = ()

    def tiers_in(self, out: str) -> list[Tier]:
        """The tiers, in the dataset in this folder."""
        return [
            Tier(*(shuffle.renamed(lambda file: storage.join(out, file.location)) for shuffle in tier))
            for tier in self.tiers
        ]


_DECODER: Final = msgspec.msgpack.Decoder(Kept)


class Continuation:
    """A round, what it takes up, and what it decided so far.

    `ledger` says what of each input was read before, and `run` is what committed that; None where there is no dataset
    yet. `next_part` is the number of the first part that is added. Once the round began, `records` and `outcomes` are
    what earlier rounds kept and made of it, and `touched` are the slots that are assembled.
    """

    def __init__(self, out: str, job: Job) -> None:
        """Take up the dataset in a folder. Raises UsageError where it was made with other settings."""
        self._out = out
        self._manifest = read_manifest(out)
        settings = Kept(slots=job.sizes.slots, rollout_spans=job.rollout_spans, rollout_traces=job.rollout_traces)
        self._kept = read_kept(out, self._manifest) or settings
        _require_settings(out, self._kept, settings)
        self.ledger = () if self._manifest is None else self._manifest.ledger
        self.run = None if self._manifest is None else self._manifest.run
        self.next_part = 0 if self._manifest is None else self._manifest.next_number
        self.records = self.outcomes = Shuffle()
        self._round = Round(number=0, now=0, grace=0, horizon=0)
        self._tiers: list[Tier] = []
        self.touched: set[int] = set()
        self._new_outcomes = Shuffle()
        self._open_since: dict[int, int] = {}
        superseded = {} if self._manifest is None else self._manifest.superseded
        self._superseded = {name: set(rows) for name, rows in superseded.items()}

    def due(self, times: Times) -> set[int]:
        """The slots in which something waited for the grace."""
        before = (time_ns() if times.now is None else times.now) - int(times.grace * 1e9)
        return {slot for slot, changed in self._kept.open_since.items() if changed <= before}

    def begin(self, times: Times, scratch: str) -> Round:
        """Begin the round. Raises UsageError when another process wrote to the dataset meanwhile."""
        if read_manifest(self._out) != self._manifest:
            raise UsageError(f"{storage.shown(self._out)}: was written to by another process meanwhile; start again")
        kept, now = self._kept, _started(scratch, times)
        horizon = max(kept.horizon, now - int(times.retain * 1e9))
        self._round = Round(number=kept.round + 1, now=now, grace=int(times.grace * 1e9), horizon=horizon)
        self.touched = self.due(msgspec.structs.replace(times, now=now))
        keeps_nothing = self._manifest is not None and not self._manifest.kept
        self._tiers = [_closed(self._out, scratch, kept.slots)] if keeps_nothing else kept.tiers_in(self._out)
        self.records = Shuffle.union(tier.records for tier in self._tiers)
        self.outcomes = Shuffle.union(tier.outcomes for tier in self._tiers)
        return self._round

    def touch(self, slots: Iterable[int], placement: Placement, leaving: Sequence[int]) -> None:
        """Say in which slots something came. Where traces of them go is assembled too."""
        self.touched.update(slot for slot in slots if slot >= 0)
        self.touched.update(placement.leaving(self.touched.intersection(leaving)).values())

    def take(self, part: AssembledPart) -> None:
        """Take note of what a task decided."""
        self._new_outcomes.add(part.outcomes)
        self._open_since |= part.open_since
        for name, row in part.superseded:
            self._superseded.setdefault(name, set()).add(row)

    def addition(self, read: Shuffle, runner: Runner) -> Addition:
        """What the dataset has besides the parts of this round."""
        tiers = [*self._tiers, Tier(read, self._new_outcomes)]
        if (count := _count_to_merge(tiers)) > 1:
            horizon = self._round.horizon if count == len(tiers) else None
            tiers[-count:] = [merge_tiers(runner, tiers[-count:], horizon=horizon)]
        waiting = {slot: changed for slot, changed in self._kept.open_since.items() if slot not in self.touched}
        kept = msgspec.structs.replace(
            self._kept,
            round=self._round.number,
            horizon=self._round.horizon,
            open_since=waiting | self._open_since,
        )
        return Addition(
            parts=() if self._manifest is None else self._manifest.parts,
            superseded={name: tuple(sorted(rows)) for name, rows in self._superseded.items()},
            kept=stage_kept(kept, tiers, runner.job.scratch),
        )


def _require_settings(out: str, before: Kept, settings: Kept) -> None:
    globs = " ".join(f"--rollout-span {glob!r}" for glob in before.rollout_spans)
    for name, made in {
        "slots": f"with {before.slots} slots",
        "rollout_spans": f"with {globs}" if globs else "without --rollout-span",
        "rollout_traces": f"{'with' if before.rollout_traces else 'without'} --rollout-traces",
    }.items():
        if getattr(before, name) != getattr(settings, name):
            raise UsageError(
                f"{storage.shown(out)}: was converted {made}, and its rollouts may go on; convert with the same"
                " settings, or everything anew into another folder"
            )


def _started(scratch: str, times: Times) -> int:
    """When the round began: one that is taken up again goes on at its time, so that its tasks are the same."""
    location = storage.join(scratch, "started")
    if storage.size_of(location) is not None:
        return int(storage.read(location))
    now = time_ns() if times.now is None else times.now
    storage.write(location, str(now).encode())
    return now


def _closed(out: str, scratch: str, slots: int) -> Tier:
    """The rows of a dataset that keeps nothing, as closed traces."""
    from art_otel.store import read_keys, row_groups  # noqa: PLC0415 # loads pyarrow, and is needed once

    records, outcomes = (ShuffleWriter(scratch, slots) for _ in range(2))
    for keys in read_keys(row_groups(out)):
        for rollout_id, _, trace_id in keys:
            outcomes.add(Outcome(trace_id, 0, 0, "closed"))
            records.put(region_of(rollout_id, ROLLOUT_REGIONS), Membership(rollout_id, trace_id))
    return Tier(Shuffle.of([records.finish()]), Shuffle.of([outcomes.finish()]))


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
    named = tuple(Tier(*(shuffle.renamed(_name_of) for shuffle in tier)) for tier in tiers)
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


def _count_to_merge(tiers: Sequence[Tier]) -> int:
    """How many of the last tiers to merge into one (1: none), so that their number stays logarithmic in the records."""
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
    job: Job


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge task wrote."""

    records: Shuffled
    outcomes: Shuffled

    def is_intact(self) -> bool:
        """Whether the files are there as they were written."""
        return self.records.is_intact() and self.outcomes.is_intact()


def merge(task: MergeTask) -> Merged:
    """Write the last outcome of each trace, and the records of those that are not closed.

    Names of rollouts, and rewards that name no trace, stay.
    """
    records, outcomes = (ShuffleWriter(task.job.scratch, task.job.sizes.slots) for _ in range(2))
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
    runner: Runner,
    tiers: Sequence[Tier],
    *,
    horizon: int | None = None,
    moved: Mapping[str, Mapping[int, tuple[str, int]]] | None = None,
) -> Tier:
    """Make one tier of several: see MergeTask."""
    records, outcomes = (Shuffle.union(shuffles) for shuffles in zip(*tiers, strict=True))
    record_files, outcome_files = (one.write_catalog(runner.job.scratch) for one in (records, outcomes))
    sizes = (records | outcomes).sizes
    tasks = [
        MergeTask(
            regions=regions,
            records=record_files,
            outcomes=outcome_files,
            horizon=horizon,
            moved={part: dict(rows) for part, rows in (moved or {}).items()},
            job=runner.job,
        )
        for regions in plan_regions(sizes, sizes, runner.job.sizes.part_bytes)
    ]
    merged = list(runner.run(merge, tasks, Merged))
    return Tier(Shuffle.of(one.records for one in merged), Shuffle.of(one.outcomes for one in merged))
