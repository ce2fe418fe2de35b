"""Route: bring the traces of one rollout, and rewards and their targets, into one slot, to be assembled together.

    trace a (slot 3) has rollout r1  ┐ route: edge a - b     reroute: copy b's records to slot 3
    trace b (slot 9) has rollout r1  ┘
    reward for rollout r1                                    route: put into slot 3

    route    regions of names         -> edges between traces of one rollout id; rewards in the slots of their traces
    probe    slots                    -> the traces that have each response id
    reroute  slots that traces leave  -> copies of these traces' records in their new slots (`Placement`)

All records that name one rollout id are in one region (likewise response ids), so each region is routed alone. Slots
are probed only if a reward names only a response, or a rollout that does not exist: probing reads all spans again.

Invariant: a reward goes to one slot: that of a trace of its rollout, else that of the only trace with its response id
(servers repeat response ids), else back to its own trace, as undeliverable with the reason. Records of earlier rounds
are routed together with new ones, so that several rounds have the result of one conversion.
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
    """A disjoint set of traces: linked traces have a common representative, the smallest trace id among them.

    An edge is two trace ids of 16 bytes each; one value may have several edges, one after the other.
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
        """The traces that are not their own representative, each with its representative."""
        for trace in self._parents:
            if (root := self._root(trace)) != trace:
                yield trace, root

    def _join(self, first: bytes, second: bytes) -> None:
        low, high = sorted((self._root(first), self._root(second)))
        self._parents[high] = low

    def _root(self, trace: bytes) -> bytes:
        parents = self._parents
        parent = parents.setdefault(trace, trace)
        while parent != trace:  # halving the path, so that long chains of edges cost no quadratic time
            parents[trace] = parents[parent]
            trace, parent = parents[trace], parents[parents[trace]]
        return trace


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of linked traces: that of their representative.

    `files` have the representative of each linked trace, in the trace's own slot and in the representative's slot, so
    that the tasks of both slots find it.
    """

    files: ShuffleCatalog
    slots: int

    def slot_of(self, trace_id: str) -> int:
        """The slot that a trace has by its id."""
        return hash_of(trace_id) % self.slots

    def representatives(self, slots: Collection[int]) -> dict[str, str]:
        """The representatives of linked traces that are in these slots or come into them, by trace id."""
        records = Shards(self.files.files_with(slots), slots).records(slots)
        return {record.trace_id: record.name for record in records if isinstance(record, Membership)}

    def leaving(self, slots: Collection[int]) -> dict[str, int]:
        """The traces that leave these slots, each with its new slot."""
        wanted = frozenset(slots)
        targets = {trace: self.slot_of(first) for trace, first in self.representatives(wanted).items()}
        return {trace: to for trace, to in targets.items() if (slot := self.slot_of(trace)) in wanted and slot != to}


def place(edges: Sequence[bytes], slots: int, folder: str) -> tuple[Placement, list[int]]:
    """Write the placement of linked traces to a file; also return the slots that any of these traces leaves."""
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
"""The id of a rollout without a declared id: its trace id, for further roots of the trace with the span id."""


class RouteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Route these regions of rollout ids or response ids, in new `files` and in those `kept` from earlier rounds."""

    regions: tuple[int, ...]
    files: ShuffleCatalog
    kept: ShuffleCatalog
    job: Job


class Routed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a route task: `edges` are pairs of traces with one rollout id, `shuffled` has the new rewards.

    `again` has the rewards of earlier rounds, `touched` the slots of traces that get a reward they did not have before.
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
        self._traces: dict[str, list[str]] = {}  # at most two per name: two already show that a name is ambiguous
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
        """Deliver a reward, or put it into the region of its response; return the rollout's name and trace."""
        name, response_id = plain_id(reward.address.rollout_id or ""), reward.address.response_id
        named = _OF_TRACE.fullmatch(name)
        # All traces of one rollout id are linked and assembled together, so any of them is right.
        traces = self._traces.get(name, [named[1]] if named else [])[:1]
        if not traces and response_id is not None:
            writer.put(region_of_response(response_id), reward)
        else:
            _deliver(reward, writer, traces, NO_ROLLOUT)
        return name, traces

    def _by_response(self, reward: ExternalReward, writer: ShuffleWriter) -> tuple[str, Sequence[str]]:
        """Deliver a reward; return the response id and the traces that have it."""
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
    """Search these slots for calls with a response id, and `with_spans` also for spans that are named by span id."""

    slots: tuple[int, ...]
    files: ShuffleCatalog
    job: Job
    with_spans: bool


def probe(task: ProbeTask) -> Shuffled:
    """Write a membership for each response id and trace into the region of the response id."""
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
    """Reroute the records of traces that leave these slots, by `placement`."""

    slots: tuple[int, ...]
    placement: Placement
    files: ShuffleCatalog
    job: Job


def reroute(task: RerouteTask) -> Shuffled:
    """Copy the records of the traces that leave. The originals stay in unchanged files; assembling skips them."""
    writer = ShuffleWriter(task.job.scratch, task.placement.slots)
    targets = task.placement.leaving(task.slots)
    for record in Shards(task.files.files_with(task.slots), task.slots).records(task.slots):
        target = targets.get(record.trace_id or "")
        if target is not None:
            writer.put(target, record)
    return writer.finish()


class Routes(NamedTuple):
    """The results of all route tasks; the fields are those of `Routed`."""

    edges: list[bytes]
    shuffle: Shuffle
    again: Shuffle
    touched: frozenset[int]


def route_all(runner: Runner, read: Shuffle, kept: Shuffle | None = None) -> Routes:
    """Route new and kept records: first by rollout ids, then the rewards that remain by response ids."""
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
    """Copy the records of the traces that leave these slots into their new slots."""
    job, files = runner.job, direct.write_catalog(runner.job.scratch)
    batches = plan_regions(direct.sizes, leaving, job.sizes.partition_bytes)
    tasks = [RerouteTask(slots=slots, placement=placement, files=files, job=job) for slots in batches]
    return Shuffle.of(runner.run(reroute, tasks, Shuffled))
