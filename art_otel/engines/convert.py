"""Convert: the story of a conversion, from span dumps to a dataset of trajectories.

    read       a split of the inputs   -> records in the slots of their traces, in shuffle files
    route      what names rollout ids  -> which traces belong together; rewards for rollouts are delivered
    probe      slots                   -> which traces have which response ids, if a reward names nothing else
    route      what names responses    -> these rewards are delivered
    (place)    the links               -> linked traces go to the slot of the smallest of them
    reroute    slots that traces leave -> their records in the slots where they go
    assemble   neighboring slots       -> a part file of trajectories
    (commit)   all parts               -> the dataset and its report, at once

Each line is a task that an `Engine` runs anywhere, but for those in parentheses, which need summaries only. A task is a
plain record, and running it takes nothing but this record and the files it names. It writes files under fresh names,
changes none, and returns a small summary. So it may run in any process of any machine, twice, or be killed and run
again. Invariant: the rows depend on the records only, not on the files that they stood in, their order, how often they
were delivered, the engine or the workers. Until the commit the dataset that was there before is as it was.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from art_otel.engines.continuation import Continuation, Times
from art_otel.engines.ledger import Unread, all_of, as_file, changed_since, ledger_after, unread, without_dataset
from art_otel.engines.local import Engine, choose_workers, local_engine
from art_otel.engines.plan import Job, Sizes, place, plan_parts
from art_otel.engines.route import reroute_all, route_all
from art_otel.engines.shuffle import Shuffle
from art_otel.engines.tasks import (
    AssembledPart,
    AssembleTask,
    ReadSummary,
    ReadTask,
    assemble,
    read_split,
    unread_split,
)
from art_otel.engines.workspace import Runner, open_workspace, run_identity
from art_otel.errors import UsageError
from art_otel.scrubbing import Scrubbing
from art_otel.sources import Input, Limits, find_inputs, format_named, identified, identity_of, plan_splits
from art_otel.store import SCHEMA_VERSION, Part
from art_otel.store.commit import check_out, commit
from art_otel.trajectories import AssemblyStats
from art_otel.version import __version__

if TYPE_CHECKING:
    from art_otel.store import ConversionReport


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """What to convert and how.

    `out` is a folder or a URL; `scratch` is where work on its way lies, None in `out`. `format` names a dump format,
    None detects it by content. `workers` is the number of processes, None as many as there are processors and work for.
    `engine` is what runs the work: processes of this
    machine, or the Ray at `ray_address`, None that of `RAY_ADDRESS`, else one that is started for the conversion. With
    `incremental` only what no earlier conversion into `out` took is read, and its trajectories are added. `since` (ns)
    leaves out files that were not changed from then on. `scrub` says what is done to secrets in logs of agents.
    `rollout_traces` also writes what each call saw, did and was worth. `on_start` is told the total bytes (None:
    unknown), `on_bytes` the bytes of each split that was read.
    """

    sources: Sequence[str]
    out: Path | str
    scratch: Path | str | None = None
    format: str | None = None
    rollout_spans: Sequence[str] = ()
    workers: int | None = None
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    incremental: bool = False
    follows: bool = False
    times: Times = msgspec.field(default_factory=Times)
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
    job = _job(conversion)
    new, continued = _find_work(conversion, job)
    inputs = [one.source for one in new]
    total = _total(inputs)
    if conversion.on_start is not None:
        conversion.on_start(total)
    settings = (__version__, SCHEMA_VERSION, job, conversion.times, continued and continued.run)
    identity = run_identity(map(identity_of, inputs), settings)
    scratch = None if conversion.scratch is None else os.fspath(conversion.scratch)
    chosen = nullcontext(engine) if engine is not None else _engine(conversion, inputs)
    with open_workspace(out, identity, scratch) as workspace, chosen as started:
        round_ = None if continued is None else continued.begin(conversion.times, workspace.folder)
        runner = Runner(msgspec.structs.replace(job, scratch=workspace.folder, round=round_), workspace, started)
        counts, read = _read(conversion, runner, inputs)
        parts, stats = _bring_together(runner, read, continued)
        from art_otel.engines.report import describe_conversion  # noqa: PLC0415 # loads while the workers work

        report = describe_conversion(counts, stats)
        failed = {file.path for file in report.unread}
        before = () if continued is None else continued.ledger
        ledger = ledger_after(before, (one for one in new if one.source.name not in failed))
        addition = None if continued is None else continued.addition(read, runner)
        commit(out, workspace.run, parts, report, addition=addition, ledger=ledger)
        return report


def has_work(conversion: Conversion) -> bool:
    """Whether an incremental conversion has something to do: new input, or rollouts that waited long enough."""
    new, continued = _find_work(conversion, _job(conversion))
    return bool(new) or continued is None or bool(continued.due(conversion.times))


def _find_work(conversion: Conversion, job: Job) -> tuple[list[Unread], Continuation | None]:
    """Find the inputs to read, and the dataset that an incremental conversion adds to."""
    out = os.fspath(conversion.out)
    inputs = identified(changed_since(conversion.since, without_dataset(find_inputs(conversion.sources), out)))
    check_out(out)
    if not conversion.incremental:
        return all_of(inputs), None
    continued = Continuation(out, job)
    return unread(inputs, continued.ledger, follows=conversion.follows), continued


def _job(conversion: Conversion) -> Job:
    return Job(
        sizes=conversion.sizes,
        limits=conversion.limits,
        format=conversion.format,
        scrub=conversion.scrub,
        rollout_spans=tuple(conversion.rollout_spans),
        rollout_traces=conversion.rollout_traces,
    )


def _engine(conversion: Conversion, inputs: Sequence[Input]) -> AbstractContextManager[Engine]:
    if conversion.engine == "ray":
        from art_otel.engines.ray_engine import ray_engine  # noqa: PLC0415 # few conversions need it

        return ray_engine(conversion.workers, conversion.ray_address)
    if conversion.ray_address is not None:
        raise UsageError(f"--ray-address {conversion.ray_address}: is for --engine ray")
    return local_engine(conversion.workers or choose_workers(inputs, conversion.sizes.worker_bytes))


def _read(conversion: Conversion, runner: Runner, inputs: Sequence[Input]) -> tuple[ReadSummary, Shuffle]:
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


def _bring_together(
    runner: Runner, read: Shuffle, continued: Continuation | None
) -> tuple[list[tuple[str, Part]], AssemblyStats]:
    """Bring the records together that belong together, and assemble them."""
    routes = route_all(runner, read, Shuffle() if continued is None else continued.records)
    placement, leaving = place(routes.edges, runner.job.sizes.slots, runner.job.scratch)
    shuffle = read | routes.shuffle
    if continued is not None:
        continued.touch((*shuffle.sizes, *routes.touched), placement, leaving)
        shuffle |= Shuffle.union((routes.again, continued.records, continued.outcomes))
    shuffle |= reroute_all(runner, shuffle, placement, leaving)
    files = shuffle.write_catalog(runner.job.scratch)
    first, slots = (0, shuffle.sizes.keys()) if continued is None else (continued.next_part, continued.touched)
    tasks = [
        AssembleTask(number=number, partitions=partitions, files=files, placement=placement, job=runner.job)
        for number, partitions in enumerate(plan_parts(shuffle.sizes, slots, runner.job.sizes), first)
    ]
    stats = AssemblyStats()
    assembled: list[tuple[str, Part]] = []
    for part in runner.run(assemble, tasks, AssembledPart):
        stats.add(part.stats)
        assembled.append((part.location, part.part))
        if continued is not None:
            continued.take(part)
    return _with_rows(assembled, is_first=not first), stats


def _with_rows(assembled: Sequence[tuple[str, Part]], *, is_first: bool) -> list[tuple[str, Part]]:
    """The parts that have rows, or one that has none: a dataset has a file, and thereby columns."""
    return [(location, part) for location, part in assembled if part.rows] or list(assembled[:is_first])


def _total(inputs: Iterable[Input]) -> int | None:
    sizes = [source.size for source in inputs]
    return None if None in sizes else sum(size or 0 for size in sizes)
