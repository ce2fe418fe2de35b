"""Convert: the story of a conversion, from span dumps to a dataset of trajectories.

    read       a split of the inputs   -> records in the slots of their traces, in shuffle files
    link       what names rollout ids  -> which traces belong together; rewards for rollouts are delivered
    probe      slots                   -> which trace has the response that a reward names and nothing else
    deliver    those rewards           -> the slots of these traces
    (place)    the links               -> linked traces go to the slot of the smallest of them
    reroute    slots that traces leave -> their records in the slots where they go
    assemble   neighboring slots       -> a part file of trajectories
    (commit)   all parts               -> the dataset and its report, at once

Each line is a task (see `tasks`) that an `Engine` runs anywhere, but for those in parentheses, which need summaries
only. Invariant: the rows depend on the records only, not on the files that they stood in, their order, how often they
were delivered, the engine or the workers. Until the commit the dataset that was there before is as it was.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from art_otel.engines import plan
from art_otel.engines.engine import Engine
from art_otel.engines.inputs import as_file, changed_since, without_dataset
from art_otel.engines.ledger import ledger_of, unread
from art_otel.engines.links import representatives
from art_otel.engines.local import local_engine
from art_otel.engines.shards import REWARDS, Shuffled
from art_otel.engines.ray_engine import ray_engine
from art_otel.engines.sizes import Sizes
from art_otel.engines.stats import merge_reads
from art_otel.engines.tasks import (
    AssembledPart,
    AssembleTask,
    DeliverTask,
    LinkSummary,
    LinkTask,
    ProbeSummary,
    ProbeTask,
    ReadSummary,
    ReadTask,
    RerouteTask,
    assemble,
    deliver,
    link,
    probe,
    read_split,
    reroute,
    unread_split,
)
from art_otel.engines.tasks.probe import write_answers
from art_otel.engines.tasks.read import LISTED_BYTES
from art_otel.engines.workspace import Workspace, open_workspace, run_identity
from art_otel.errors import SourceError, UsageError
from art_otel.scrubbing import Scrubbing
from art_otel.sources import Input, Limits, find_inputs, format_named, identity_of, plan_splits
from art_otel.store import SCHEMA_VERSION, Manifest, read_manifest
from art_otel.store.commit import check_out, commit
from art_otel.trajectories import AssemblyStats
from art_otel.version import __version__

if TYPE_CHECKING:
    from art_otel.store import ConversionReport


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What to convert and how.

    `out` is a folder or a URL. `format` names a dump format, None detects it by content. `workers` is the number of
    processes, None as many as there are processors and work for. `engine` is what runs the work: processes of this
    machine, or the Ray at `ray_address`, None that of `RAY_ADDRESS`, else one that is started for the conversion. With `incremental` only what no earlier
    conversion into `out` took is read, and its trajectories are added. `since` (ns) leaves out files that were not
    changed from then on. `scrub` says what is done to secrets in logs of agents. `rollout_traces` also writes what each
    call saw, did and was worth. `on_start` is told the total bytes (None: unknown), `on_bytes` the bytes of each split
    that was read.
    """

    sources: Sequence[str]
    out: Path | str
    format: str | None = None
    rollout_spans: Sequence[str] = ()
    workers: int | None = None
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    incremental: bool = False
    since: int | None = None
    scrub: Scrubbing = "on"
    rollout_traces: bool = False
    limits: Limits = msgspec.field(default_factory=Limits)
    sizes: Sizes = msgspec.field(default_factory=Sizes)
    on_start: Callable[[int | None], None] | None = None
    on_bytes: Callable[[int], None] | None = None


def convert(conversion: Conversion, engine: Engine | None = None) -> "ConversionReport":
    """Read the sources, assemble trajectories, write the dataset and its report.

    Without an `engine` the tasks run on this machine. A conversion that was ended early goes on where it was when one
    of the same inputs and settings is started.
    """
    if conversion.workers is not None and conversion.workers < 1:
        raise UsageError(f"--workers {conversion.workers}: needs at least one worker")
    if conversion.format is not None:
        format_named(conversion.format)
    out = os.fspath(conversion.out)
    inputs = changed_since(conversion.since, without_dataset(find_inputs(conversion.sources), out))
    check_out(out)
    earlier = read_manifest(out) if conversion.incremental else None
    if conversion.incremental:
        inputs = list(unread(inputs, {} if earlier is None else earlier.ledger))
    total = _total(inputs)
    if conversion.on_start is not None:
        conversion.on_start(total)
    identity = run_identity(map(identity_of, inputs), (_settings(conversion), earlier and earlier.run))
    chosen = nullcontext(engine) if engine is not None else _engine(conversion, total)
    with open_workspace(out, identity) as workspace, chosen as runs:
        if conversion.incremental and read_manifest(out) != earlier:
            raise UsageError(f"{out}: was written to by another process meanwhile; start again")
        return _Run(conversion, workspace, runs, earlier).convert(inputs, out)


def _engine(conversion: Conversion, total: int | None) -> AbstractContextManager[Engine]:
    if conversion.engine == "ray":
        return ray_engine(conversion.workers, conversion.ray_address)
    if conversion.ray_address is not None:
        raise UsageError(f"--ray-address {conversion.ray_address}: is for --engine ray")
    return local_engine(conversion.workers or _default_workers(total, conversion.sizes))


class _Run:
    """One conversion on its way."""

    def __init__(self, conversion: Conversion, workspace: Workspace, engine: Engine, earlier: Manifest | None) -> None:
        self._conversion = conversion
        self._workspace = workspace
        self._engine = engine
        self._earlier = earlier
        self._sizes = conversion.sizes
        self._slots = conversion.sizes.slots

    def convert(self, inputs: Sequence[Input], out: str) -> "ConversionReport":
        reads = self._read(inputs)
        read = [summary.shuffled for summary in reads]
        links = self._link(read)
        delivered = [*(summary.shuffled for summary in links), *self._deliver(reads, links)]
        placement = plan.place(representatives(edge for summary in links for edge in summary.edges), self._slots)
        direct = [*read, *delivered]
        rerouted = self._reroute(direct, placement)
        parts = self._assemble(direct, rerouted, placement)
        stats = AssemblyStats()
        for part in parts:
            stats.add(part.stats)
        from art_otel.engines.stats import describe_conversion  # noqa: PLC0415 # loads while the workers work

        report = describe_conversion(merge_reads(reads), stats)
        staged = [(part.location, part.part) for part in _with_rows(parts, self._earlier)]
        commit(out, self._workspace.run, staged, report, ledger=ledger_of(inputs), earlier=self._earlier)
        return report

    def _read(self, inputs: Sequence[Input]) -> list[ReadSummary]:
        conversion = self._conversion
        regular = [as_file(source, self._workspace.folder) for source in inputs]
        chosen = None if conversion.format is None else format_named(conversion.format)
        tasks = [
            ReadTask(
                inputs=split,
                format=conversion.format,
                limits=conversion.limits,
                scrub=conversion.scrub,
                slots=self._slots,
                scratch=self._workspace.folder,
            )
            for split in plan_splits(regular, self._sizes.split_bytes(_total(regular)), chosen)
        ]
        summaries: list[ReadSummary] = []
        for summary in self._workspace.summaries(self._engine, read_split, tasks, ReadSummary, unread_split):
            summaries.append(summary)
            if conversion.on_bytes is not None:
                conversion.on_bytes(sum(file.bytes for file in summary.files))
        _require_something_read(summaries)
        return summaries

    def _link(self, read: Sequence[Shuffled]) -> list[LinkSummary]:
        tasks = [
            LinkTask(
                regions=regions,
                files=plan.files_with(read, regions),
                slots=self._slots,
                scratch=self._workspace.folder,
            )
            for regions in plan.link_batches(read, self._sizes)
        ]
        return list(self._workspace.summaries(self._engine, link, tasks, LinkSummary))

    def _deliver(self, reads: Sequence[ReadSummary], links: Sequence[LinkSummary]) -> list[Shuffled]:
        """Rewards that name nothing but a response; mostly there are none."""
        shuffled = [*(summary.shuffled for summary in reads), *(summary.shuffled for summary in links)]
        waiting = plan.files_with(shuffled, (REWARDS,))
        if not waiting:
            return []
        read = [summary.shuffled for summary in reads]
        listed = sorted({response_id for summary in reads for response_id in summary.response_ids or ()})
        are_few = sum(map(len, listed)) <= LISTED_BYTES and all(one.response_ids is not None for one in reads)
        unlisted = shuffled[len(reads) :] if are_few else shuffled
        probes = [
            ProbeTask(
                slots=partition.slots,
                files=plan.files_with(read, partition.slots),
                response_ids=tuple(listed) if are_few else (),
                reward_files=plan.files_with(unlisted, (REWARDS,)),
            )
            for partition in plan.partitions(plan.total_sizes(read), self._sizes)
        ]
        probed = self._workspace.summaries(self._engine, probe, probes, ProbeSummary)
        answers = write_answers(probed, self._workspace.folder)
        tasks = [
            DeliverTask(files=(file,), answers=answers, slots=self._slots, scratch=self._workspace.folder)
            for file in waiting
        ]
        return list(self._workspace.summaries(self._engine, deliver, tasks, Shuffled))

    def _reroute(self, direct: Sequence[Shuffled], placement: plan.Placement) -> list[Shuffled]:
        tasks = [
            RerouteTask(
                slots=slots,
                targets={trace: to for slot in slots for trace, to in placement.leaving[slot].items()},
                files=plan.files_with(direct, slots),
                slot_count=self._slots,
                scratch=self._workspace.folder,
            )
            for slots in plan.reroute_batches(placement, direct, self._sizes)
        ]
        return list(self._workspace.summaries(self._engine, reroute, tasks, Shuffled))

    def _assemble(
        self, direct: Sequence[Shuffled], rerouted: Sequence[Shuffled], placement: plan.Placement
    ) -> list[AssembledPart]:
        partitions = plan.partitions(plan.total_sizes([*direct, *rerouted]), self._sizes)
        linked = plan.by_slot(placement.representatives, self._slots)
        tasks: list[AssembleTask] = []
        first = 0 if self._earlier is None else len(self._earlier.parts)
        for number, batch in enumerate(plan.parts(partitions, self._sizes), first):
            slots = [slot for partition in batch for slot in partition.slots]
            tasks.append(
                AssembleTask(
                    number=number,
                    partitions=batch,
                    files=plan.files_with(direct, slots),
                    rerouted=plan.files_with(rerouted, slots),
                    representatives={trace: to for slot in slots for trace, to in linked.get(slot, {}).items()},
                    rollout_spans=tuple(self._conversion.rollout_spans),
                    rollout_traces=self._conversion.rollout_traces,
                    limits=self._conversion.limits,
                    sizes=self._sizes,
                    scratch=self._workspace.folder,
                )
            )
        return list(self._workspace.summaries(self._engine, assemble, tasks, AssembledPart))


def _with_rows(assembled: Sequence[AssembledPart], earlier: Manifest | None) -> list[AssembledPart]:
    """The parts that have rows, or one that has none: a dataset has a file, and thereby columns."""
    parts = [part for part in assembled if part.part.rows]
    return parts or list(assembled[: earlier is None])


def _total(inputs: Iterable[Input]) -> int | None:
    sizes = [source.size for source in inputs]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _default_workers(total: int | None, sizes: Sizes) -> int:
    """As many as there are processors, fewer when each would have too little to do."""
    useful = None if total is None else total // sizes.worker_bytes
    if useful is not None and useful < 2:
        return 1
    from art_otel.engines.processes import available_processors  # noqa: PLC0415 # as `local_engine` does

    processors = available_processors()
    return processors if useful is None else min(useful, processors)


def _settings(conversion: Conversion) -> object:
    return (
        __version__,
        SCHEMA_VERSION,
        conversion.format,
        tuple(conversion.rollout_spans),
        conversion.scrub,
        conversion.rollout_traces,
        conversion.limits,
        conversion.sizes,
    )


def _require_something_read(summaries: Sequence[ReadSummary]) -> None:
    """Leave an earlier dataset alone when no source could be read at all."""
    files = [file for summary in summaries for file in summary.files]
    errors = [file.error for file in files if file.error is not None]
    if errors and len(errors) == len(files) and not any(summary.spans for summary in summaries):
        raise SourceError("; ".join(dict.fromkeys(errors)))
