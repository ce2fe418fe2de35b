"""ArrivingRollouts: rollouts whose spans come from elsewhere, until each has ended.

Invariant: the spans that came decide what is given in the end, not their order, and repeated ones change nothing. A
trajectory is given once its rollout has ended (`endings` says when), and again, as the next revision, when more of it
came. What it depends on is assembled with it: the rollouts around it, and all of a trace in which spans do not say
where they belong.

Memory holds where the lines of spans stand, and each record as a number until it was given.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import chain, islice, takewhile
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from art_otel import attributes
from art_otel.conventions import rewards_of, rewards_of_log
from art_otel.live.assembly import read_records
from art_otel.live.endings import SpanTally, edition_numbers, end_number, is_quiet, says_the_end, span_number
from art_otel.live.limits import MAX_AGE
from art_otel.sources import Record
from art_otel.spans import LogRecord, Span
from art_otel.spool import SpooledLine
from art_otel.trajectories.rollouts import (
    is_marked_root,
    is_provisional,
    is_reward_span,
    is_rollout_span,
    joined_id,
)

_FORGET_EVERY: Final = 60.0
_DIGEST_BITS: Final = 64

BelongsTo: TypeAlias = tuple[Literal["rollout", "trace"], str]
"""The id of a rollout, or of a trace."""


class GivenSpans(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of spans that were given, as an archive keeps it. The fields are those of ArrivingSpans."""

    to: BelongsTo
    is_vague: bool
    traces: tuple[str, ...]
    enclosing: tuple[int, ...]
    revisions: tuple[tuple[tuple[str, int, str], int], ...]
    digest: int
    lines: tuple[SpooledLine, ...]
    numbers: bytes


class Built(Protocol):
    """A trajectory, or what stands for one that another process built."""

    @property
    def rollout_id(self) -> str:
        """As a trajectory's."""
        ...

    @property
    def trace_id(self) -> str:
        """As a trajectory's."""
        ...

    @property
    def order(self) -> tuple[str, int, str]:
        """As a trajectory's."""
        ...


Built_co = TypeVar("Built_co", bound=Built, covariant=True)


class Archive(Protocol):
    """Where spans that were given are kept, when memory is not the place."""

    def find(self, to: BelongsTo) -> GivenSpans | None:
        """Return the spans of a rollout or trace; None where it has none."""
        ...

    def find_of_trace(self, trace_id: str) -> Iterable[GivenSpans]:
        """Return all spans that have spans of a trace among them."""
        ...


class Together(NamedTuple):
    """Rollouts that are built together, of which some are due, from the lines of all. `digests` are of their spans."""

    due: AbstractSet[BelongsTo]
    digests: Mapping[BelongsTo, int]
    lines: tuple[SpooledLine, ...]


class EndedRollout(NamedTuple, Generic[Built_co]):
    """The trajectory of a rollout that has ended.

    It can be built again from `lines`. `digest` is that of the spans that decide it.
    """

    trajectory: Built_co
    revision: int
    lines: tuple[SpooledLine, ...]
    digest: int


class ArrivingRollouts:
    """Gathers arriving spans and says which rollouts have ended. Times are seconds of a clock that the caller reads.

    A rollout that has not ended counts as ended when nothing came for `grace`. Where the spans of one stand is known
    until nothing came for `max_age`; what comes later stands for itself, unless there is an `archive`: whoever writes
    what `given` says there is told of late spans for ever.
    """

    def __init__(
        self,
        *,
        grace: float,
        max_age: float = MAX_AGE,
        archive: Archive | None = None,
        rollout_attributes: Sequence[str] = (),
    ) -> None:
        self._grace = grace
        self._max_age = max_age
        self._archive = archive
        self._rollout_attributes = tuple(rollout_attributes)
        self._spans: dict[BelongsTo, ArrivingSpans] = {}
        """Those of one trace are all here, or all in the archive."""
        self._new: OrderedDict[BelongsTo, None] = OrderedDict()
        """Rollouts of which spans came that were not given yet, the longest quiet first."""
        self._ended: dict[BelongsTo, None] = {}
        """The rollouts of `_new` that have ended, the first to end first."""
        self._forgot_at = 0.0
        self._of_trace: dict[str, set[BelongsTo]] = {}

    def add(self, lines: Iterable[tuple[Sequence[Record], SpooledLine]], now: float) -> None:
        """Add the records of spooled lines, those of a rollout together: whether it has ended is asked once."""
        changed: dict[BelongsTo, ArrivingSpans] = {}
        for record, line in ((record, line) for records, line in lines for record in records):
            for to in belongs_to(record, self._rollout_attributes):
                known = changed.get(to)
                if self._archive is not None and (known is None or record.trace_id not in known.traces):
                    self._recall(self._archive, to, record, now)
                spans = self._spans.get(to)
                if spans is None:
                    spans = self._spans[to] = ArrivingSpans(to, self._rollout_attributes)
                if spans.add(record, line, now):
                    changed[to] = spans
        for to, spans in changed.items():
            self._new[to] = None
            self._new.move_to_end(to)
            if spans.has_ended:
                self._ended[to] = None
            else:
                self._ended.pop(to, None)
            self._note_traces(to, spans)

    def keep_open(self, rollout_id: str, now: float) -> None:
        """Begin the grace of a rollout anew: somebody knows that it runs, although nothing of it comes."""
        to: BelongsTo = ("rollout", rollout_id)
        if to in self._new:
            self._spans[to].changed = now
            self._new.move_to_end(to)

    @property
    def has_ended(self) -> bool:
        """Whether any has ended that was not given, without a grace."""
        return bool(self._ended)

    @property
    def open(self) -> int:
        """How many rollouts, or traces, have more than was given."""
        return len(self._new)

    @property
    def open_lines(self) -> Iterator[SpooledLine]:
        """The lines of those."""
        return chain.from_iterable(self._spans[to].lines for to in self._new)

    def due(self, now: float, at_most: int | None = None) -> frozenset[BelongsTo]:
        """What has ended by now, or was quiet for the grace, and was not given as it is; the oldest `at_most` of it."""
        due = chain(self._ended, takewhile(lambda to: is_quiet(self._spans[to].changed, now, self._grace), self._new))
        return frozenset(islice(due, at_most))

    def together(self, due: AbstractSet[BelongsTo], now: float) -> list[Together]:
        """What is due, with what is built with it. What comes later is no part of it."""
        if now - self._forgot_at > min(_FORGET_EVERY, self._max_age):
            self._forgot_at = now
            self._forget(now - self._max_age)
        for to in due:
            self._spans[to].note_building()
        return [
            Together(
                due=cluster & due,
                digests={to: self._spans[to].digest for to in cluster},
                lines=tuple(dict.fromkeys(line for to in sorted(cluster) for line in self._spans[to].lines)),
            )
            for cluster in self._clusters(due)
        ]

    def give(self, together: Together, built: Iterable[Built_co]) -> list[EndedRollout[Built_co]]:
        """Return the rollouts that were built, which are due again only when more of them came."""
        ended = list(self._ended_of(together, built))
        for to in together.due:
            self._spans[to].note_given()
            if self._spans[to].digest == together.digests[to]:
                self._new.pop(to, None)
                self._ended.pop(to, None)
                self._spans[to].forget_index()
        seen = {trace_id for to in together.due for trace_id in self._spans[to].traces}
        for to, digest in together.digests.items():
            if self._spans[to].digest == digest:
                self._spans[to].new_traces -= seen
        return ended

    def given(self, together: Together) -> list[GivenSpans]:
        """Return what an archive keeps of rollouts that were given and are not due again."""
        return [self._spans[to].as_given() for to in together.digests if to not in self._new]

    def lone_rewards(self, together: Together) -> dict[BelongsTo, int]:
        """Return how many rewards there are by what they name, where nothing else came of it."""
        return {to: count for to in together.digests if (count := self._spans[to].lone_rewards)}

    def _note_traces(self, to: BelongsTo, spans: "ArrivingSpans") -> None:
        for trace_id in spans.traces:
            self._of_trace.setdefault(trace_id, set()).add(to)

    def _recall(self, archive: Archive, to: BelongsTo, record: Record, now: float) -> None:
        """Take back from the archive what a record belongs to, and all that shares a trace with it."""
        recalled: list[GivenSpans] = []
        if to not in self._spans and (given := archive.find(to)) is not None:
            recalled.append(given)
        named = {to[1] if to[0] == "trace" else "", record.trace_id or ""} - {""}
        traces = named - self._of_trace.keys()
        while traces or recalled:
            while recalled:
                given = recalled.pop()
                if given.to not in self._spans:
                    spans = self._spans[given.to] = ArrivingSpans.of_given(given, self._rollout_attributes)
                    spans.changed = now
                    traces |= spans.traces - self._of_trace.keys()
                    self._note_traces(given.to, spans)
            for trace_id in traces:
                recalled += archive.find_of_trace(trace_id)
            traces = set[str]()

    def _clusters(self, due: Iterable[BelongsTo]) -> list[set[BelongsTo]]:
        """Group what is due with everything that is assembled with it; no rollout is in two groups."""
        cluster_of: dict[BelongsTo, set[BelongsTo]] = {}
        for start in due:
            cluster = self._closure(start)
            for other in {
                id(overlap): overlap for to in cluster if (overlap := cluster_of.get(to)) is not None
            }.values():
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

    def _needed_by(self, spans: "ArrivingSpans") -> Iterator[BelongsTo]:
        for trace_id in spans.traces:
            neighbors = self._of_trace[trace_id]
            if any(self._spans[to].is_vague for to in neighbors):
                yield from neighbors
            else:
                yield from (to for to in neighbors if any(map(self._spans[to].has, spans.enclosing)))

    def _ended_of(self, together: Together, built: Iterable[Built_co]) -> Iterator[EndedRollout[Built_co]]:
        trajectories = list(built)
        names = {trajectory.rollout_id for trajectory in trajectories}
        vague = {
            trace_id
            for to in together.due
            if self._spans[to].is_vague or to[1] not in names  # else its spans are of another rollout
            for trace_id in self._spans[to].new_traces
        }
        for trajectory in trajectories:
            to: BelongsTo = ("rollout", trajectory.rollout_id)
            to = to if to in self._spans else ("trace", trajectory.trace_id)
            if to not in together.digests:  # it shares a line with one of these
                continue
            spans = self._spans[to]
            revisions = spans.revisions
            earlier = revisions.get(trajectory.order)
            if earlier is None and spans.is_vague and to[0] == "rollout":  # its first trace may be another one now
                earlier = max(revisions.values(), default=None)
            is_news = (earlier is not None or to not in self._new) and not vague.isdisjoint(spans.traces)
            is_due = to in together.due
            if is_due and earlier is not None:  # what came may be of another attempt under its id alone
                others = {
                    other.trace_id
                    for other in trajectories
                    if other.rollout_id == trajectory.rollout_id and other.trace_id != trajectory.trace_id
                }
                is_due = not spans.changed_traces <= others
            if is_due or is_news:
                revisions[trajectory.order] = revision = 0 if earlier is None else earlier + 1
                yield EndedRollout(trajectory, revision, together.lines, self._digest(to, together))

    def _digest(self, to: BelongsTo, together: Together) -> int:
        """The digest of a rollout's spans, and of those in its traces that do not say where they belong."""
        neighbors = (other for trace_id in self._spans[to].traces for other in self._of_trace[trace_id])
        deciding = {to, *(other for other in neighbors if self._spans[other].is_vague)}
        return sum(together.digests.get(other, 0) for other in deciding) % (1 << _DIGEST_BITS)

    def _forget(self, before: float) -> None:
        old = {to for to, spans in self._spans.items() if spans.changed < before and to not in self._new}
        while kept := {
            to for to in old if not all(self._of_trace[trace_id] <= old for trace_id in self._spans[to].traces)
        }:
            old -= kept
        for to in old:
            for trace_id in self._spans.pop(to).traces:
                self._of_trace.pop(trace_id, None)


class ArrivingSpans:
    """`is_vague` says that others of their traces may be of the same rollout; `changed` is when the last one came.

    `revisions` are those of the trajectories that were given, by their `order`. `traces` are the ids of their traces.
    `new_traces` are those of which something came that no trajectory of them was given with.
    `enclosing` are the numbers of the spans that their roots are nested in. `digest` is of their contents, the same in
    every process. `lone_rewards` is how many rewards name this rollout or trace, as long as nothing else is of it.
    """

    __slots__ = (
        "_building",
        "_given",
        "_index",
        "_numbers",
        "_rollout_attributes",
        "_to",
        "changed",
        "digest",
        "enclosing",
        "is_vague",
        "lines",
        "lone_rewards",
        "new_traces",
        "revisions",
        "traces",
    )

    def __init__(self, to: BelongsTo, rollout_attributes: Sequence[str] = ()) -> None:
        self._to = to
        self._rollout_attributes = rollout_attributes
        self.new_traces: set[str] = set()
        self.is_vague = to[0] == "trace"
        self.lines: list[SpooledLine] = []
        self.traces: set[str] = {to[1]} if self.is_vague else set()
        self.enclosing: set[int] = set()
        self.revisions: dict[tuple[str, int, str], int] = {}
        self.changed = 0.0
        self.digest = 0
        self.lone_rewards: int | None = 0
        self._index: SpanIndex | None = SpanIndex()
        self._numbers = array("q")
        """Those of an index that was forgotten."""
        self._given: dict[str | None, int] = {}
        """The digest of the records of each trace that were given."""
        self._building: dict[str | None, int] = {}
        """The same of what is built now."""

    @classmethod
    def of_given(cls, given: GivenSpans, rollout_attributes: Sequence[str] = ()) -> "ArrivingSpans":
        """Go on with what an archive kept."""
        spans = cls(given.to, rollout_attributes)
        spans.is_vague, spans.digest, spans.lone_rewards = given.is_vague, given.digest, None
        spans.lines, spans.traces, spans.enclosing = list(given.lines), set(given.traces), set(given.enclosing)
        spans.revisions = dict(given.revisions)
        spans._index, spans._numbers = None, array("q", given.numbers)
        return spans

    def as_given(self) -> GivenSpans:
        """Give what an archive keeps."""
        return GivenSpans(
            to=self._to,
            is_vague=self.is_vague,
            traces=tuple(self.traces),
            enclosing=tuple(self.enclosing),
            revisions=tuple(self.revisions.items()),
            digest=self.digest,
            lines=tuple(self.lines),
            numbers=(self._numbers if self._index is None else array("q", self._index.numbers)).tobytes(),
        )

    def add(self, record: Record, line: "SpooledLine", now: float) -> bool:
        """Add a record of a line; return whether it is new."""
        if self._index is None and line in self.lines:  # a spool that is read again
            return False
        if isinstance(record, Span) and self._is_known(record):
            return False
        content = self._indexed().add(record)
        if content is None:
            return False
        self.digest ^= content
        if trace_id := self._to[1] if self._to[0] == "trace" else record.trace_id:
            self.new_traces.add(trace_id)
        if isinstance(record, Span):
            self._note(record)
        elif self.lone_rewards is not None and self._to[0] == "rollout":  # a log record is here for its reward
            self.lone_rewards += 1
        if not self.lines or self.lines[-1] is not line:
            self.lines.append(line)
        self.changed = now
        return True

    @property
    def has_ended(self) -> bool:
        """As SpanIndex."""
        return self._indexed().has_ended

    def has(self, number: int) -> bool:
        """As SpanIndex."""
        return number in self._numbers if self._index is None else self._index.has(number)

    def note_building(self) -> None:
        """What is here now is built; what comes from now on is no part of that."""
        self._building = dict(self._indexed().by_trace)

    def note_given(self) -> None:
        """What was built was given."""
        self._given = self._building

    @property
    def changed_traces(self) -> set[str | None]:
        """The traces of which something is built that was not given."""
        return {trace_id for trace_id, digest in self._building.items() if self._given.get(trace_id) != digest}

    def forget_index(self) -> None:
        """Hold less: mostly nothing more comes of what was given, and if so, its lines are read once more."""
        if self._index is not None:
            self._numbers = array("q", self._index.numbers)
            self._index = None

    def _indexed(self) -> "SpanIndex":
        if self._index is None:
            self._index = SpanIndex()
            for record in read_records(self.lines):
                if self._to in belongs_to(record, self._rollout_attributes):
                    self._index.add(record)
            self._given = dict(self._index.by_trace)
        return self._index

    def _is_known(self, span: Span) -> bool:
        """Whether a gateway that knows of no end says what it said before somebody told another one of an end."""
        if not is_marked_root(span) or says_the_end(span):
            return False
        says = edition_numbers(span)
        return bool(says) and all(map(self.has, {*says, end_number(span)}))

    def _note(self, span: Span) -> None:
        is_joined = self._to == ("rollout", joined_id(span, self._rollout_attributes))
        self.is_vague = self.is_vague or is_provisional(span) or is_joined
        if not is_reward_span(span):
            self.lone_rewards = None
        elif self.lone_rewards is not None and (self._to != ("trace", span.trace_id) or not span.links):
            self.lone_rewards += 1
        if self._to[0] == "rollout":
            self.traces.add(span.trace_id)
        if span.parent_span_id is not None and is_marked_root(span):
            self.enclosing.add(span_number(span.trace_id, span.parent_span_id))


class SpanIndex(SpanTally):
    """Says of the records that were added whether they are all of the rollout."""

    __slots__ = ("_records", "by_trace")

    def __init__(self) -> None:
        super().__init__()
        self._records: set[int] = set()
        self.by_trace: dict[str | None, int] = {}
        """The digest of the records of each trace."""

    def add(self, record: Record) -> int | None:
        """Take a record, and give the number of its content; None for one that is here."""
        content = int.from_bytes(blake2b(msgspec.msgpack.encode(record), digest_size=8).digest())
        if content in self._records:
            return None
        self._records.add(content)
        self.by_trace[record.trace_id] = self.by_trace.get(record.trace_id, 0) ^ content
        if isinstance(record, Span):
            self.add_span(record)
        return content


def belongs_to(record: Record, rollout_attributes: Sequence[str] = ()) -> Iterator[BelongsTo]:
    """Where a record says that it belongs: by a rollout id, and by an attribute that joins traces.

    A span that gives rewards by its links belongs to the traces of what it judges, too; a log record that gives one to
    a rollout that it names, to that rollout.
    """
    named = record.attributes.get(attributes.ROLLOUT_ID) if isinstance(record, (Span, LogRecord)) else None
    is_named = named is not None and named != "" and (isinstance(record, Span) or _gives_reward(record))
    if is_named:
        yield ("rollout", str(named))
    if isinstance(record, Span):
        is_meant = is_named and is_rollout_span(record)
        joined = None if is_meant else joined_id(record, rollout_attributes)
        if joined is not None and joined != named:
            yield ("rollout", joined)
        if is_named or joined is not None:
            return
    if record.trace_id:
        yield ("trace", record.trace_id)
    if isinstance(record, Span) and record.links and rewards_of(record):
        for trace_id in {link.trace_id for link in record.links} - {record.trace_id}:
            yield ("trace", trace_id)


def _gives_reward(record: Record) -> bool:
    return isinstance(record, LogRecord) and bool(rewards_of_log(record))
