"""Incremental conversion: a round reads only what no earlier round has read, and adds it to the dataset.

    1. read new input into shuffle files           (the shuffle files of earlier rounds are kept beside the parts)
    2. assemble again all slots that it touches    (with new and kept records)
    3. `decisions`: add new rows, supersede others
    4. keep the new shuffle files, merge old ones

So all rounds together give the rows of one conversion. Kept files are in tiers, the oldest first, which are merged as
in log-structured stores, so that their number stays logarithmic. A merge of all tiers drops closed rollouts' records.

Invariant: a round has the settings of earlier rounds, or raises a UsageError. It needs only its inputs and the files
that the manifest names, and changes none of them. A dataset of a full conversion keeps no shuffle files, so all its
traces are closed: their rows stay as they are.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.assemble import AssembledPart
from art_otel.engines.convert import Conversion, Times, assemble_all, find_sources, job_of, prepared, read_all, staged
from art_otel.engines.ledger import unread
from art_otel.engines.read import Unread, ledger_after, note_spools
from art_otel.engines.report import describe_conversion
from art_otel.engines.route import place, reroute_all, route_all
from art_otel.engines.run import Job, Round, Runner
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
    plan_regions,
    region_of,
)
from art_otel.errors import BusyError, SourceError, StorageError, StoreError, UsageError
from art_otel.live.endings import is_quiet
from art_otel.sources.files.inputs import KEPT_PREFIX, STDIN
from art_otel.store import Manifest, read_manifest
from art_otel.store.commit import Addition, KeptFile, commit
from art_otel.trajectories import plain_id

if TYPE_CHECKING:
    from art_otel.engines.run import Engine
    from art_otel.store import ConversionReport

_FACTOR: Final = 2
"""A tier is merged with the later tiers if it has at most so many times their bytes."""

_MOST_SMALL: Final = 64
"""The most small parts that `follow` leaves in a dataset before it compacts them."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The index of the files that a dataset keeps for later rounds: the shuffle files of each tier, by name.

    `slots`, `rollout_spans`, `rollout_attributes`, `rollout_traces` and `token_facts` are the settings that all rounds
    must share. `round` is the number of the last round. Traces without a record since `horizon` (ns) are closed.
    `open_since` has for each slot with waiting traces the time of the longest waiting one (ns).
    """

    slots: int
    rollout_spans: tuple[str, ...]
    rollout_attributes: tuple[str, ...]
    rollout_traces: bool
    token_facts: tuple[str, ...] = ()
    round: int = 0
    horizon: int = 0
    open_since: dict[int, int] = {}
    tiers: tuple[Shuffle, ...] = ()


_DECODER: Final = msgspec.msgpack.Decoder(Kept)


class _RoundWork(NamedTuple):
    """The input of a round: the dataset so far (None: no dataset yet), what it keeps, and the unread input."""

    manifest: Manifest | None
    kept: Kept
    new: list[Unread]


def convert_round(conversion: Conversion, engine: "Engine | None" = None) -> "ConversionReport":
    """Convert the input that no earlier round has read, and add its trajectories to the dataset."""
    out, job = os.fspath(conversion.out), job_of(conversion)
    work = _find_work(conversion, job)
    manifest, inputs = work.manifest, [one.source for one in work.new]
    round_ = _round(work.kept, conversion.times)
    with prepared(conversion, msgspec.structs.replace(job, round=round_), inputs, engine) as runner:
        # The output folder is locked only from here on, so another process may have committed before.
        if read_manifest(out) != manifest:
            raise UsageError(f"{storage.shown(out)}: was changed by another process in the meantime; start again")
        tiers = _tiers(out, work, runner.job.scratch)
        kept = Shuffle.union(tiers)
        counts, read = read_all(conversion, runner, inputs)
        routes = route_all(runner, read, kept)
        placement, leaving = place(routes.edges, job.sizes.slots, runner.job.scratch)
        arrived = read | routes.shuffle
        touched = {slot for slot in arrived.sizes if slot >= 0} | routes.touched | _due(work.kept, round_)
        touched.update(placement.leaving(touched.intersection(leaving)).values())
        shuffle = Shuffle.union((arrived, routes.again, kept))
        shuffle |= reroute_all(runner, shuffle, placement, leaving)
        first = 0 if manifest is None else manifest.next_number
        parts, stats = assemble_all(runner, shuffle, placement, touched, first)
        report = describe_conversion(counts, stats)
        ledger = ledger_after(() if manifest is None else manifest.ledger, work.new, report)
        tiers.append(read | Shuffle.of(part.outcomes for part in parts))
        addition = Addition(
            parts=() if manifest is None else manifest.parts,
            superseded={} if manifest is None else _superseded(out, manifest, parts),
            kept=_stage(_after(work.kept, round_, touched, parts), _merged(runner, tiers), runner.job.scratch),
        )
        new = staged(parts, is_new=not first)
        commit(out, new, report, addition=addition, ledger=ledger)
        note_spools(work.new, ledger)
        return report


def follow(
    conversion: Conversion,
    *,
    every: float,
    tell: "Callable[[ConversionReport], None]",
    warn: Callable[[str], None],
    rounds: int | None = None,
) -> None:
    """Convert new input `every` so many seconds, for so many `rounds`, or (None) until an exception such as Ctrl+C.

    The process may be killed at any moment and started again: committed rounds stay, the rest is read again. `tell`
    gets the report of each round with work, `warn` a text if a source cannot be read now, because it may come later.
    Raises UsageError for settings that no round can have.
    """
    if STDIN in conversion.sources:
        raise UsageError("standard input cannot be followed; name files or folders")
    conversion = msgspec.structs.replace(conversion, incremental=True, follows=True)
    warned = ""
    while rounds is None or rounds > 0:
        began = time.monotonic()
        try:
            if _has_work(conversion):
                tell(convert_round(conversion))
                _compact_many(conversion)
            warned = ""
        except (SourceError, StorageError, BusyError) as error:
            if str(error) != warned:
                warned = str(error)
                warn(warned)
        rounds = None if rounds is None else rounds - 1
        time.sleep(max(0.0, every - (time.monotonic() - began)) if rounds != 0 else 0.0)


def _has_work(conversion: Conversion) -> bool:
    """Whether a round has work: new input, or rollouts that have waited long enough."""
    work = _find_work(conversion, job_of(conversion))
    return bool(work.new) or work.manifest is None or bool(_due(work.kept, _round(work.kept, conversion.times)))


def _compact_many(conversion: Conversion) -> None:
    """Compact the dataset if it has many small parts, so that reading it stays fast."""
    from art_otel.store.superseded import compact, count_small_parts  # noqa: PLC0415 # loads pyarrow

    if count_small_parts(conversion.out) > _MOST_SMALL:
        compact(conversion.out)


def _find_work(conversion: Conversion, job: Job) -> _RoundWork:
    """Find the unread input and the dataset. Raises UsageError if the dataset has other settings."""
    out, inputs = os.fspath(conversion.out), find_sources(conversion)
    manifest = read_manifest(out)
    settings = Kept(
        slots=job.sizes.slots,
        rollout_spans=job.rollout_spans,
        rollout_attributes=job.rollout_attributes,
        rollout_traces=job.rollout_traces,
        token_facts=job.token_facts,
    )
    kept = settings if manifest is None or not manifest.kept else _read_kept(out, manifest.kept[0])
    _require_settings(out, kept, settings)
    ledger = () if manifest is None else manifest.ledger
    return _RoundWork(manifest, kept, unread(inputs, ledger, follows=conversion.follows))


def _read_kept(out: str, name: str) -> Kept:
    location = storage.join(out, name)
    data = storage.read(location)
    if _index_name(data) != name:
        raise StoreError(f"{storage.shown(location)}: was changed after it was written; convert everything again")
    return _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))


def _require_settings(out: str, before: Kept, settings: Kept) -> None:
    globs = " ".join(f"--rollout-span {glob!r}" for glob in before.rollout_spans)
    names = " ".join(f"--rollout-attribute {name}" for name in before.rollout_attributes)
    for name, made in {
        "slots": f"with {before.slots} slots",
        "rollout_spans": f"with {globs}" if globs else "without --rollout-span",
        "rollout_attributes": f"with {names}" if names else "without --rollout-attribute",
        "rollout_traces": f"{'with' if before.rollout_traces else 'without'} --rollout-traces",
        "token_facts": f"with --token-facts {' '.join(before.token_facts) or 'of none'}",
    }.items():
        if getattr(before, name) != getattr(settings, name):
            raise UsageError(
                f"{storage.shown(out)}: was converted {made}, and its rollouts may go on; convert with the same"
                " settings, or convert everything again into another folder"
            )


def _round(kept: Kept, times: Times) -> Round:
    """The round that begins now."""
    now = time.time_ns() if times.now is None else times.now
    horizon = max(kept.horizon, now - int(times.retain * 1e9))
    return Round(number=kept.round + 1, now=now, grace=int(times.grace * 1e9), horizon=horizon)


def _due(kept: Kept, round_: Round) -> set[int]:
    """The slots in which a rollout has waited for the grace."""
    return {slot for slot, changed in kept.open_since.items() if is_quiet(changed, round_.now, round_.grace)}


def _tiers(out: str, work: _RoundWork, scratch: str) -> list[Shuffle]:
    """The tiers of earlier rounds. A dataset without kept files gets one tier with its rows as closed traces."""
    if work.manifest is None or work.manifest.kept:
        return [tier.renamed(lambda file: storage.join(out, file.location)) for tier in work.kept.tiers]
    from art_otel.store import read_keys, row_groups  # noqa: PLC0415 # loads pyarrow, and is needed once

    writer = ShuffleWriter(scratch, work.kept.slots)
    for keys in read_keys(row_groups(out)):
        for rollout_id, _, trace_id in keys:
            writer.add(Outcome(trace_id, 0, 0, "closed"))
            name = plain_id(rollout_id)
            writer.put(region_of(name, ROLLOUT_REGIONS), Membership(name, trace_id))
    return [Shuffle.of([writer.finish()])]


def _superseded(out: str, manifest: Manifest, parts: Iterable[AssembledPart]) -> dict[str, tuple[int, ...]]:
    """The superseded rows of all earlier parts, by part, with those that this round supersedes."""
    keys = [key for part in parts for key in part.superseded]
    if not keys:
        return manifest.superseded
    from art_otel.store.superseded import with_superseded  # noqa: PLC0415 # loads pyarrow

    return with_superseded(out, manifest, keys)


def _after(kept: Kept, round_: Round, touched: Iterable[int], parts: Iterable[AssembledPart]) -> Kept:
    """The index after a round, still with the old tiers."""
    open_since = dict(kept.open_since)
    for slot in touched:
        open_since.pop(slot, None)
    for part in parts:
        open_since |= part.open_since
    return msgspec.structs.replace(kept, round=round_.number, horizon=round_.horizon, open_since=open_since)


def _stage(kept: Kept, tiers: Sequence[Shuffle], scratch: str) -> tuple[KeptFile, ...]:
    """Write the index of these tiers; return the files that the commit moves into the dataset, the index first."""
    files = [KeptFile(_name_of(file), file.size, file.location) for tier in tiers for file in tier.files]
    kept = msgspec.structs.replace(kept, tiers=tuple(tier.renamed(_name_of) for tier in tiers))
    data = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(kept))
    location = storage.join(scratch, _index_name(data))
    storage.write(location, data)
    return (KeptFile(_index_name(data), len(data), location), *files)


def _name_of(file: ShuffleFile) -> str:
    """The name that a shuffle file has in the dataset."""
    name = Path(file.location.partition("?")[0] if storage.is_url(file.location) else file.location).name
    return name if name.startswith(KEPT_PREFIX) else f"{KEPT_PREFIX}{name.removeprefix('shuffle-')}"


def _index_name(data: bytes) -> str:
    return f"{KEPT_PREFIX}index-{hashlib.sha256(data).hexdigest()[:32]}"


class MergeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Merge these regions of kept files. `is_all`: the files are all that the dataset keeps."""

    regions: tuple[int, ...]
    files: ShuffleCatalog
    is_all: bool
    job: Job


def merge(task: MergeTask) -> Shuffled:
    """Merge these regions of several files into one file.

    If all kept files are merged, only the last outcome of each trace stays, and the records of closed traces go. Names
    of rollouts, and rewards without a trace, always stay.
    """
    writer = ShuffleWriter(task.job.scratch, task.job.sizes.slots)
    shards = Shards(task.files.files_with(task.regions), task.regions)
    horizon = task.job.round.horizon if task.job.round is not None else 0
    for region in task.regions:
        last = _last_outcomes(shards.records((region,))) if task.is_all else {}
        closed = {trace_id for trace_id, outcome in last.items() if outcome.is_over(horizon)}
        names: set[Membership] = set()
        for record in shards.records((region,)):
            if isinstance(record, Membership):
                if record not in names:
                    names.add(record)
                    writer.put(region, record)
            elif region < 0 or (not (isinstance(record, Outcome) and last) and record.trace_id not in closed):
                writer.put(region, record)
        for trace_id, outcome in last.items():
            if trace_id not in closed:
                writer.put(region, outcome)
            elif outcome.state != "nothing":  # this mark must stay, or late spans would make a second row
                writer.put(region, msgspec.structs.replace(outcome, state="closed", rows=()))
    return writer.finish()


def _last_outcomes(records: Iterable[object]) -> dict[str, Outcome]:
    """The last outcome of each trace."""
    last: dict[str, Outcome] = {}
    for record in records:
        if isinstance(record, Outcome):
            earlier = last.get(record.trace_id)
            if earlier is None or earlier.round < record.round:
                last[record.trace_id] = record
    return last


def _merged(runner: Runner, tiers: list[Shuffle]) -> list[Shuffle]:
    """The tiers, with the last ones merged into one if they are about as large as the tier before them."""
    count = _count_to_merge(tiers)
    if count == 1:
        return tiers
    union = Shuffle.union(tiers[-count:])
    files = union.write_catalog(runner.job.scratch)
    tasks = [
        MergeTask(regions=regions, files=files, is_all=count == len(tiers), job=runner.job)
        for regions in plan_regions(union.sizes, union.sizes, runner.job.sizes.part_bytes)
    ]
    return [*tiers[:-count], Shuffle.of(runner.run(merge, tasks, Shuffled))]


def _count_to_merge(tiers: Sequence[Shuffle]) -> int:
    """How many of the last tiers to merge into one (1: none), so that their number stays logarithmic.

    sizes 100, 9, 4, 2      4 <= 2 * 2, 9 <= 2 * 6, 100 > 2 * 15: merge the last 3
    """
    count, behind = 1, 0
    for number, tier in enumerate(reversed(tiers)):
        size = sum(file.size for file in tier.files)
        if number and size <= _FACTOR * behind:
            count = number + 1
        behind += size
    return count
