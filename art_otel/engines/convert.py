"""Convert: all steps of a conversion, from span dumps to a dataset of trajectories.

    read       a split of the inputs   -> records in the slots of their traces, in shuffle files
    route      regions of rollout ids  -> links between traces of one rollout; rewards for rollouts are delivered
    probe      slots                   -> the traces of each response id, only if a reward names nothing else
    route      regions of responses    -> these rewards are delivered
    (place)    the links               -> linked traces get the slot of the smallest of them
    reroute    slots that traces leave -> their records in their new slots
    assemble   neighboring slots       -> a part file of trajectories
    (commit)   all parts               -> the dataset and its report, at once

Each line is a task that an `Engine` runs anywhere; those in parentheses run here, because they need summaries only. A
task is a plain record. It needs only this record and the files that the record names, writes files with new names,
changes no file, and returns a small summary. So it may run on any machine, twice, or be killed and run again.

Invariant: the rows depend on the set of records only, not on files, order, repeated delivery, engine or workers. Until
the commit an earlier dataset stays as it was.
"""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from art_otel.calls import TOKEN_FACTS
from art_otel.engines.assemble import AssembledPart, AssembleTask, assemble, plan_parts
from art_otel.engines.read import (
    ReadSummary,
    ReadTask,
    all_of,
    as_file,
    changed_since,
    ledger_after,
    note_spools,
    read_split,
    unread_split,
    without_dataset,
)
from art_otel.engines.referenced_content import content_folders
from art_otel.engines.report import describe_conversion
from art_otel.engines.route import Placement, place, reroute_all, route_all
from art_otel.engines.run import Engine, Job, Runner, Sizes, choose_workers, local_engine, scratch_folder
from art_otel.engines.shuffle import Shuffle
from art_otel.errors import UsageError
from art_otel.scrubbing import SecretRules
from art_otel.sources import InputFile, Limits, find_inputs, format_named, identified, plan_splits
from art_otel.store import Part
from art_otel.store.commit import check_out, commit
from art_otel.trajectories import AssemblyStats

if TYPE_CHECKING:
    from art_otel.store import ConversionReport


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When incremental conversion writes and closes rollouts. `now` (ns) replaces the clock.

    A rollout that has not ended is written when nothing came for `grace` seconds. A rollout for which nothing came for
    `retain` seconds is closed: later spans of it are too late.
    """

    grace: float = 15 * 60.0
    retain: float = 30 * 24 * 3600.0
    now: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError if `retain` is shorter than `grace`, or `grace` is negative."""
        if not 0 <= self.grace <= self.retain:
            raise UsageError(
                f"--grace {self.grace:g}s, --retain {self.retain:g}s: --retain must be at least --grace, because "
                "waiting rollouts are kept"
            )


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What to convert and how.

        convert(Conversion(sources=["dump/*.jsonl"], out="dataset"))

    - `out` is a folder or a URL. `scratch` is the folder of temporary files (None: in `out`).
    - `format` names a dump format (None: detected by content). `since` (ns): files that were not changed since then
      are left out. `content` are folders or URLs of content that spans refer to, besides the folders of the sources.
    - `workers` is the number of processes (None: by processors and input size). `engine` runs the tasks: processes of
      this machine, or the Ray at `ray_address` (None: `RAY_ADDRESS`, else a local Ray for this conversion).
    - `incremental`: read only what no earlier conversion into `out` has read, and add its trajectories.
    - `secrets`: what to do with secrets in logs of agents. `rollout_traces`: also write a RolloutTrace of each call.
      `token_facts`: facts of tokens that are written, too.
    - `on_start` is called with the total bytes (None: unknown), `on_bytes` with the bytes of each split that was read.
    """

    sources: Sequence[str]
    out: Path | str
    scratch: Path | str | None = None
    format: str | None = None
    rollout_spans: Sequence[str] = ()
    rollout_attributes: Sequence[str] = ()
    workers: int | None = None
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    incremental: bool = False
    follows: bool = False
    times: Times = msgspec.field(default_factory=Times)
    since: int | None = None
    secrets: SecretRules = SecretRules()
    rollout_traces: bool = False
    token_facts: Sequence[str] = ()
    content: Sequence[str] = ()
    limits: Limits = msgspec.field(default_factory=Limits)
    sizes: Sizes = msgspec.field(default_factory=Sizes)
    on_start: Callable[[int | None], None] | None = None
    on_bytes: Callable[[int], None] | None = None


def convert(conversion: Conversion, engine: Engine | None = None) -> "ConversionReport":
    """Read the sources, assemble trajectories, write the dataset and its report, and return the report.

    `engine` overrides the conversion's own. A conversion that was stopped early has changed nothing. Raises UsageError
    for invalid settings, SourceError if nothing can be read, StorageError, WorkerError.
    """
    if conversion.incremental:
        from art_otel.engines.incremental import convert_round  # noqa: PLC0415 # no other conversion needs it

        return convert_round(conversion, engine)
    job = job_of(conversion)
    new = all_of(find_sources(conversion))
    inputs = [one.source for one in new]
    job = msgspec.structs.replace(job, sizes=job.sizes.fitted(inputs))
    with prepared(conversion, job, inputs, engine) as runner:
        counts, read = read_all(conversion, runner, inputs)
        routes = route_all(runner, read)
        placement, leaving = place(routes.edges, job.sizes.slots, runner.job.scratch)
        shuffle = read | routes.shuffle
        shuffle |= reroute_all(runner, shuffle, placement, leaving)
        parts, stats = assemble_all(runner, shuffle, placement, shuffle.sizes)
        report = describe_conversion(counts, stats)
        ledger = ledger_after((), new, report)
        commit(os.fspath(conversion.out), staged(parts), report, ledger=ledger)
        note_spools(new, ledger)
        return report


def find_sources(conversion: Conversion) -> list[InputFile]:
    """Find the inputs of a conversion, and check that it may write to its output folder."""
    out = os.fspath(conversion.out)
    inputs = identified(changed_since(conversion.since, without_dataset(find_inputs(conversion.sources), out)))
    check_out(out)
    return inputs


def job_of(conversion: Conversion) -> Job:
    """The settings that all tasks of a conversion share. Raises UsageError for invalid ones."""
    if conversion.workers is not None and conversion.workers < 1:
        raise UsageError(f"--workers {conversion.workers}: use at least 1 worker")
    if conversion.format is not None:
        format_named(conversion.format)
    if unknown := set(conversion.token_facts) - set(TOKEN_FACTS):
        raise UsageError(f"--token-facts {min(unknown)}: there are {' and '.join(TOKEN_FACTS)}")
    return Job(
        sizes=conversion.sizes,
        limits=conversion.limits,
        format=conversion.format,
        secrets=conversion.secrets,
        rollout_spans=tuple(conversion.rollout_spans),
        rollout_attributes=tuple(conversion.rollout_attributes),
        rollout_traces=conversion.rollout_traces,
        token_facts=tuple(sorted(set(conversion.token_facts))),
        content=content_folders(conversion.sources, conversion.content),
    )


@contextmanager
def prepared(conversion: Conversion, job: Job, inputs: Sequence[InputFile], engine: Engine | None) -> Generator[Runner]:
    """A runner of the job, with a scratch folder of its own."""
    if conversion.on_start is not None:
        conversion.on_start(_total(inputs))
    scratch = None if conversion.scratch is None else os.fspath(conversion.scratch)
    chosen = nullcontext(engine) if engine is not None else _engine(conversion, inputs)
    with scratch_folder(os.fspath(conversion.out), scratch) as folder, chosen as started:
        yield Runner(msgspec.structs.replace(job, scratch=folder), started)


def _engine(conversion: Conversion, inputs: Sequence[InputFile]) -> AbstractContextManager[Engine]:
    if conversion.engine == "ray":
        from art_otel.engines.ray_engine import ray_engine  # noqa: PLC0415 # few conversions need it

        return ray_engine(conversion.workers, conversion.ray_address)
    if conversion.ray_address is not None:
        raise UsageError(f"--ray-address {conversion.ray_address}: is for --engine ray")
    return local_engine(conversion.workers or choose_workers(inputs, conversion.sizes.worker_bytes))


def read_all(conversion: Conversion, runner: Runner, inputs: Sequence[InputFile]) -> tuple[ReadSummary, Shuffle]:
    """Read all inputs."""
    regular = [as_file(source, runner.job.scratch) for source in inputs]
    chosen = None if conversion.format is None else format_named(conversion.format)
    splits = plan_splits(regular, runner.job.sizes.split_bytes(_total(regular)), chosen)
    counts, read = ReadSummary(), Shuffle()
    tasks = [ReadTask(inputs=split, job=runner.job) for split in splits]
    for summary in runner.run(read_split, tasks, ReadSummary, unread_split):
        counts.add(summary)
        read.add(summary.shuffled)
        if conversion.on_bytes is not None:
            conversion.on_bytes(sum(file.bytes for file in summary.files))
    counts.require_something()
    return counts, read


def assemble_all(
    runner: Runner, shuffle: Shuffle, placement: Placement, slots: Iterable[int], first: int = 0
) -> tuple[list[AssembledPart], AssemblyStats]:
    """Assemble these slots, into parts from number `first` on."""
    files = shuffle.write_catalog(runner.job.scratch)
    tasks = [
        AssembleTask(number=number, partitions=partitions, files=files, placement=placement, job=runner.job)
        for number, partitions in enumerate(plan_parts(shuffle.sizes, slots, runner.job.sizes), first)
    ]
    stats = AssemblyStats()
    parts: list[AssembledPart] = []
    for part in runner.run(assemble, tasks, AssembledPart):
        stats.add(part.stats)
        parts.append(part)
    return parts, stats


def staged(parts: Sequence[AssembledPart], *, is_new: bool = True) -> list[tuple[str, Part]]:
    """The parts with rows, and their locations; in a new dataset at least one part, so that readers see its columns."""
    chosen = [one for one in parts if one.part.rows] or parts[:is_new]
    return [(one.location, one.part) for one in chosen]


def _total(inputs: Iterable[InputFile]) -> int | None:
    sizes = [source.size for source in inputs]
    return None if None in sizes else sum(size or 0 for size in sizes)
