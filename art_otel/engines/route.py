"""Route: what belongs together is brought together: traces of one rollout id, and rewards and what they judge.

    route    regions of names        -> which traces share a rollout id; rewards in the slots of their traces
    probe    slots                   -> which traces have which response ids
    reroute  slots that traces leave -> their records in the slots where they go (see `placement`)

All that names a rollout id is in one region, and so is all that names a response id, so the regions can be routed
apart. Slots are probed only if a reward names nothing but a response, or a rollout that is nowhere.

Invariant: a reward goes to one slot: that of a trace of its rollout, else of the only trace that has a call with its
response id, for servers repeat response ids; else back to its own trace as undeliverable, with the reason. What
earlier rounds kept is routed with what is new, so edges and rewards are those of one conversion.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from art_otel.conventions import SPAN_NAME, parse_call, response_id_of_details, role_of
from art_otel.engines.run import Job, Runner
from art_otel.engines.shuffle import (
    RESPONSE_REGIONS,
    ROLLOUT_REGIONS,
    SPAN_REGIONS,
    Arrival,
    Membership,
    Shards,
    Shuffle,
    ShuffleCatalog,
    Shuffled,
    ShuffleWriter,
    Stored,
    hash_of,
    plan_regions,
    region_of_response,
)
from art_otel.spans import LogRecord, Span
from art_otel.trajectories import NO_RESPONSE, NO_ROLLOUT, NO_SPAN, SEVERAL_CALLS, ExternalReward, plain_id

_ID_BYTES: Final = 16


class Links:
    """Traces, and for each the smallest that it is linked to: a disjoint set.

    An edge is the bytes of two trace ids; several may stand in one value.
    """

    def __init__(self, edges: Iterable[bytes]) -> None:
        self._parents: dict[bytes, bytes] = {}
        for several in edges:
            for at in range(0, len(several), 2 * _ID_BYTES):
                middle = at + _ID_BYTES
                self._join(several[at:middle], several[middle : middle + _ID_BYTES])

    def __len__(self) -> int:
        return len(self._parents)

    def linked(self) -> Iterator[tuple[bytes, bytes]]:
        """The traces that are linked to a smaller one, each with the smallest."""
        for trace in self._parents:
            if (root := self._root(trace)) != trace:
                yield trace, root

    def _join(self, first: bytes, second: bytes) -> None:
        low, high = sorted((self._root(first), self._root(second)))
        self._parents[high] = low

    def _root(self, trace: bytes) -> bytes:
        parents = self._parents
        parent = parents.setdefault(trace, trace)
        while parent != trace:
            parents[trace] = parents[parent]
            trace, parent = parents[trace], parents[parents[trace]]
        return trace


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where linked traces go: each, with its representative, is named in its own slot and in that of the other."""

    files: ShuffleCatalog
    slots: int

    def slot_of(self, trace_id: str) -> int:
        """The slot of a trace."""
        return hash_of(trace_id) % self.slots

    def representatives(self, slots: Collection[int]) -> dict[str, str]:
        """For each linked trace of these slots, or that comes to them, the smallest that it is linked to."""
        records = Shards(self.files.files_with(slots), slots).records(slots)
        return {record.trace_id: record.name for record in records if isinstance(record, Membership)}

    def leaving(self, slots: Collection[int]) -> dict[str, int]:
        """The traces that leave these slots, with their new ones."""
        wanted = frozenset(slots)
        targets = {trace: self.slot_of(first) for trace, first in self.representatives(wanted).items()}
        return {trace: to for trace, to in targets.items() if (slot := self.slot_of(trace)) in wanted and slot != to}


def place(edges: Sequence[bytes], slots: int, folder: str) -> tuple[Placement, list[int]]:
    """Write down where linked traces go. Also gives the slots that any of them leaves."""
    writer = ShuffleWriter(folder, slots)
    leaving: set[int] = set()
    for trace, representative in Links(edges).linked():
        record = Membership(representative.hex(), trace.hex())
        slot, target = hash_of(record.trace_id) % slots, hash_of(record.name) % slots
        for region in {slot, target}:
            writer.put(region, record)
        if slot != target:
            leaving.add(slot)
    return Placement(files=Shuffle.of([writer.finish()]).write_catalog(folder), slots=slots), sorted(leaving)


_OF_TRACE: Final = re.compile("([0-9a-f]{32})(?:-[0-9a-f]{16})?")
"""The id of a rollout that declares none: its trace id, for further roots of the trace with the span id."""


class RouteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Regions of rollout ids or of response ids, in these files and in those that are `kept` from earlier rounds."""

    regions: tuple[int, ...]
    files: ShuffleCatalog
    kept: ShuffleCatalog
    job: Job


class Routed(msgspec.Struct, frozen=True, kw_only=True):
    """What a task routed: `edges` are pairs of traces that share a rollout id, `shuffled` has the rewards.

    `again` has rewards of earlier rounds, `touched` the slots of traces for which a reward is news.
    """

    edges: bytes
    shuffled: Shuffled
    again: Shuffled
    touched: tuple[int, ...]


def route(task: RouteTask) -> Routed:
    """Link the traces of each rollout id in these regions, and deliver the rewards that name one, or a response."""
    router = _Router(task)
    for catalog, is_new in ((task.kept, False), (task.files, True)):
        for record in Shards(catalog.files_with(task.regions), task.regions).records(task.regions):
            if isinstance(record, Membership):
                router.add_name(record, is_new=is_new)
            elif isinstance(record, ExternalReward):
                router.rewards.append((record, is_new))
    return router.routed()


class _Router:
    def __init__(self, task: RouteTask) -> None:
        self.rewards: list[tuple[ExternalReward, bool]] = []
        self._job = task.job
        self._is_by_rollout = any(region in ROLLOUT_REGIONS for region in task.regions)
        self._edges: set[bytes] = set()
        self._traces: dict[str, list[str]] = {}  # two of a name at most: more do not matter
        self._new_names: set[str] = set()

    def add_name(self, member: Membership, *, is_new: bool) -> None:
        traces = self._traces.setdefault(member.name, [])
        if is_new:
            self._new_names.add(member.name)
        if member.trace_id not in traces:
            if traces and self._is_by_rollout:
                self._edges.add(bytes.fromhex(traces[0] + member.trace_id))
            if len(traces) < 2:
                traces.append(member.trace_id)

    def routed(self) -> Routed:
        again, shuffled = (ShuffleWriter(self._job.scratch, self._job.sizes.slots) for _ in range(2))
        touched: set[str] = set()
        deliver = self._by_rollout if self._is_by_rollout else self._by_response
        for reward, is_new in self.rewards:
            name, traces = deliver(reward, shuffled if is_new else again)
            if is_new or name in self._new_names:
                touched.update(traces)
        if self._job.round is not None:
            for trace_id in sorted(touched):
                shuffled.add(Arrival(trace_id, self._job.round.number, 0))
        return Routed(
            edges=b"".join(sorted(self._edges)),
            shuffled=shuffled.finish(),
            again=again.finish(),
            touched=tuple(sorted({hash_of(trace_id) % self._job.sizes.slots for trace_id in touched})),
        )

    def _by_rollout(self, reward: ExternalReward, writer: ShuffleWriter) -> tuple[str, Sequence[str]]:
        """Deliver a reward, or have it wait in the region of its response; gives the name and the trace."""
        name, response_id = plain_id(reward.address.rollout_id or ""), reward.address.response_id
        named = _OF_TRACE.fullmatch(name)
        traces = self._traces.get(name, [named[1]] if named else [])[:1]
        if not traces and response_id is not None:
            writer.put(region_of_response(response_id), reward)
        else:
            _deliver(reward, writer, traces, NO_ROLLOUT)
        return name, traces

    def _by_response(self, reward: ExternalReward, writer: ShuffleWriter) -> tuple[str, Sequence[str]]:
        """Deliver a reward; gives the name, and the traces that have the response."""
        name = reward.address.response_id or ""
        traces = self._traces.get(name, [])
        missing = NO_SPAN if name.startswith(SPAN_NAME) else NO_RESPONSE
        _deliver(reward, writer, traces, SEVERAL_CALLS if traces else missing)
        return name, traces


def _deliver(reward: ExternalReward, writer: ShuffleWriter, traces: Sequence[str], reason: str) -> None:
    if len(traces) == 1:
        writer.add(msgspec.structs.replace(reward, trace_id=traces[0]))
    else:
        writer.add(msgspec.structs.replace(reward, trace_id=reward.origin[0], undeliverable=reason))


class ProbeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots to look through for calls with a response id, and for spans if one is named without its trace."""

    slots: tuple[int, ...]
    files: ShuffleCatalog
    job: Job
    with_spans: bool


def probe(task: ProbeTask) -> Shuffled:
    """Write which traces have which response ids into the regions of these."""
    writer = ShuffleWriter(task.job.scratch, task.job.sizes.slots)
    members: set[tuple[str, str]] = set()
    for record in Shards(task.files.files_with(task.slots), task.slots).records(task.slots):
        span = f"{SPAN_NAME}{record.span_id}" if task.with_spans and isinstance(record, Span) else None
        for name in (_response_id(record), span):
            if name is not None and record.trace_id and (name, record.trace_id) not in members:
                members.add((name, record.trace_id))
                writer.put(region_of_response(name), Membership(name, record.trace_id))
    return writer.finish()


def _response_id(record: Stored) -> str | None:
    if isinstance(record, LogRecord):
        return response_id_of_details(record)
    return parse_call(record).response_id if isinstance(record, Span) and role_of(record) == "inference" else None


class RerouteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots that traces leave; `placement` says where to."""

    slots: tuple[int, ...]
    placement: Placement
    files: ShuffleCatalog
    job: Job


def reroute(task: RerouteTask) -> Shuffled:
    """Copy the records of the traces that leave. They stay too, and who assembles their slot passes over them."""
    writer = ShuffleWriter(task.job.scratch, task.placement.slots)
    targets = task.placement.leaving(task.slots)
    for record in Shards(task.files.files_with(task.slots), task.slots).records(task.slots):
        target = targets.get(record.trace_id or "")
        if target is not None:
            writer.put(target, record)
    return writer.finish()


class Routes(NamedTuple):
    """What all tasks routed: edges between traces, rewards in the slots of their traces, and what they touch."""

    edges: list[bytes]
    shuffle: Shuffle
    again: Shuffle
    touched: frozenset[int]


def route_all(runner: Runner, read: Shuffle, kept: Shuffle | None = None) -> Routes:
    """Route what was read, with what is kept: by rollout ids, and what that leaves by response ids."""
    kept = kept or Shuffle()
    by_rollout = _route(runner, ROLLOUT_REGIONS, read, kept)
    new, again = read | by_rollout.shuffle, kept | by_rollout.again
    regions, sought = range(SPAN_REGIONS.start, RESPONSE_REGIONS.stop), (new | again).sizes.keys()
    if sought.isdisjoint(regions):
        return by_rollout
    with_spans = not sought.isdisjoint(SPAN_REGIONS)
    probed, probed_kept = (_probe(runner, one, with_spans=with_spans) for one in (read, kept))
    by_response = _route(runner, regions, new | probed, again | probed_kept)
    return Routes(
        by_rollout.edges,
        by_rollout.shuffle | by_response.shuffle,
        by_rollout.again | by_response.again,
        by_rollout.touched | by_response.touched,
    )


def _route(runner: Runner, regions: Iterable[int], new: Shuffle, kept: Shuffle) -> Routes:
    job = runner.job
    files, kept_files = new.write_catalog(job.scratch), kept.write_catalog(job.scratch)
    tasks = [
        RouteTask(regions=batch, files=files, kept=kept_files, job=job)
        for batch in plan_regions((new | kept).sizes, regions, job.sizes.partition_bytes)
    ]
    routed = list(runner.run(route, tasks, Routed))
    return Routes(
        [one.edges for one in routed],
        Shuffle.of(one.shuffled for one in routed),
        Shuffle.of(one.again for one in routed),
        frozenset(slot for one in routed for slot in one.touched),
    )


def _probe(runner: Runner, shuffle: Shuffle, *, with_spans: bool) -> Shuffle:
    job, files = runner.job, shuffle.write_catalog(runner.job.scratch)
    batches = plan_regions(shuffle.sizes, range(job.sizes.slots), job.sizes.partition_bytes)
    tasks = [ProbeTask(slots=slots, files=files, job=job, with_spans=with_spans) for slots in batches]
    return Shuffle.of(runner.run(probe, tasks, Shuffled))


def reroute_all(runner: Runner, direct: Shuffle, placement: Placement, leaving: Iterable[int]) -> Shuffle:
    """Bring the records of traces that leave slots to where they go."""
    job, files = runner.job, direct.write_catalog(runner.job.scratch)
    batches = plan_regions(direct.sizes, leaving, job.sizes.partition_bytes)
    tasks = [RerouteTask(slots=slots, placement=placement, files=files, job=job) for slots in batches]
    return Shuffle.of(runner.run(reroute, tasks, Shuffled))
