"""ArrivingRollouts: rollouts whose spans come from elsewhere, until each has ended.

Invariant: the spans that came decide what is given in the end, not their order, and repeated ones change nothing. A
trajectory is given once its rollout has ended, and again, as the next revision, when more of it came. What it depends
on is assembled with it: the rollouts around it, and all of a trace in which spans do not say where they belong.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from art_otel import attributes
from art_otel.live.arriving_spans import ArrivingSpans, BelongsTo
from art_otel.live.assembly import assemble
from art_otel.spool import SpooledLine

if TYPE_CHECKING:
    from art_otel.sources import Record
    from art_otel.trajectories import Trajectory

MAX_AGE: Final = 6 * 3600.0


class ArrivingRollouts:
    """Times are seconds of a clock that the caller reads.

    A rollout that has not ended counts as ended when nothing came for `grace`. Where the spans of one stand is known
    until nothing came for `max_age`; what comes later stands for itself. `rollout_spans` are globs of span names that
    count as rollouts.
    """

    def __init__(self, *, grace: float, max_age: float = MAX_AGE, rollout_spans: Sequence[str] = ()) -> None:
        self._grace = grace
        self._max_age = max_age
        self._rollout_spans = tuple(rollout_spans)
        self._spans: dict[BelongsTo, ArrivingSpans] = {}
        self._new: dict[BelongsTo, None] = {}
        """Those of which more came than was given."""
        self._of_trace: dict[str, set[BelongsTo]] = {}

    def add(self, records: "Iterable[Record]", place: SpooledLine, now: float) -> None:
        """Take the records of a line, which stands there."""
        for record in records:
            for to in _belongs_to(record):
                spans = self._spans.get(to)
                if spans is None:
                    spans = self._spans[to] = ArrivingSpans(to)
                if spans.add(record, place, now):
                    self._new[to] = None
                    for trace_id in spans.traces:
                        self._of_trace.setdefault(trace_id, set()).add(to)

    def due(self, now: float) -> frozenset[BelongsTo]:
        """What has ended by now, or was quiet for the grace, and was not given as it is."""
        quiet = now - self._grace
        return frozenset(to for to in self._new if self._spans[to].has_ended or self._spans[to].changed <= quiet)

    def take(self, due: AbstractSet[BelongsTo], now: float) -> "list[Trajectory]":
        """The trajectories of what is due, in the order of their ids. What is given counts as taken."""
        taken = [trajectory for together in self._clusters(due) for trajectory in self._assembled(together, due)]
        for to in due:
            self._new.pop(to, None)
        self._forget(now - self._max_age)
        return sorted(taken, key=attrgetter("order"))

    def _clusters(self, due: Iterable[BelongsTo]) -> "list[set[BelongsTo]]":
        """What is due, with what is assembled with it; nothing stands in two of them."""
        cluster_of: dict[BelongsTo, set[BelongsTo]] = {}
        for start in due:
            cluster = self._closure(start)
            for other in {id(found): found for to in cluster if (found := cluster_of.get(to)) is not None}.values():
                cluster |= other
            cluster_of.update(dict.fromkeys(cluster, cluster))
        return list({id(cluster): cluster for cluster in cluster_of.values()}.values())

    def _closure(self, start: BelongsTo) -> set[BelongsTo]:
        closure, waiting = {start}, [start]
        while waiting:
            for to in self._needed_by(self._spans[waiting.pop()]):
                if to not in closure:
                    closure.add(to)
                    waiting.append(to)
        return closure

    def _needed_by(self, spans: ArrivingSpans) -> Iterator[BelongsTo]:
        for trace_id in spans.traces:
            neighbors = self._of_trace[trace_id]
            if any(self._spans[to].is_vague for to in neighbors):
                yield from neighbors
            else:
                yield from (to for to in neighbors if any(map(self._spans[to].has, spans.enclosing)))

    def _assembled(self, cluster: AbstractSet[BelongsTo], due: AbstractSet[BelongsTo]) -> "Iterator[Trajectory]":
        is_vague = any(self._spans[to].is_vague for to in cluster & due)
        places = dict.fromkeys(place for to in sorted(cluster) for place in self._spans[to].lines)
        for trajectory in assemble(places, self._rollout_spans):
            to: BelongsTo = ("rollout", trajectory.rollout_id)
            to = to if to in self._spans else ("trace", trajectory.trace_id)
            if to not in cluster:  # it shares a line with one of these
                continue
            revisions = self._spans[to].revisions
            earlier = revisions.get(trajectory.order)
            if to in due or (is_vague and earlier is not None):
                revisions[trajectory.order] = revision = 0 if earlier is None else earlier + 1
                yield replace(trajectory, revision=revision)

    def _forget(self, before: float) -> None:
        old = [to for to, spans in self._spans.items() if spans.changed < before and to not in self._new]
        for to in old:
            for trace_id in self._spans.pop(to).traces:
                self._of_trace[trace_id].discard(to)
                if not self._of_trace[trace_id]:
                    del self._of_trace[trace_id]


def _belongs_to(record: "Record") -> Iterator[BelongsTo]:
    """Where a record says that it belongs; a reward that says it by its links, to the traces of what it judges."""
    from art_otel.conventions import rewards_of  # noqa: PLC0415 # only who reads loads the conventions
    from art_otel.spans import Span  # noqa: PLC0415 # as above

    rollout_id = record.attributes.get(attributes.ROLLOUT_ID) if isinstance(record, Span) else None
    if rollout_id is not None and rollout_id != "":
        yield ("rollout", str(rollout_id))
        return
    if record.trace_id:
        yield ("trace", record.trace_id)
    if isinstance(record, Span) and record.links and rewards_of(record):
        for trace_id in {link.trace_id for link in record.links} - {record.trace_id}:
            yield ("trace", trace_id)
