"""ArrivingRollouts: rollouts whose spans come from other processes, until each rollout has ended.

    add(lines) ─► ArrivingSpans, one for each rollout or trace ─► due ─► together ─► (the caller builds) ─► give

Invariant: the set of spans decides which trajectories come out; their order and repeated ones do not. A trajectory is
delivered once its rollout has ended (`endings` says when). If more spans come later, it is delivered again as the next
revision. A rollout is built together with the rollouts around it, and with the whole trace where a span of the trace
does not say to which rollout it belongs.

Memory holds the places of the spans' lines in the spool, not the spans; and until delivery a 64-bit digest of each.
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
from art_otel.trajectories.rollouts import is_marked_root, is_provisional, is_reward_span, is_rollout_span, joined_id

_FORGET_EVERY: Final = 60.0
_DIGEST_BITS: Final = 64

BelongsTo: TypeAlias = tuple[Literal["rollout", "trace"], str]
"""The id of a rollout, or, for spans that name no rollout, the id of their trace: `("rollout", "r1")`."""


class GivenSpans(msgspec.Struct, frozen=True, kw_only=True):
    """The state of delivered spans, as an archive keeps it. The fields are those of `ArrivingSpans`.

    `numbers` are the span numbers of `SpanIndex` as bytes of signed 64-bit integers.
    """

    to: BelongsTo
    is_vague: bool
    traces: tuple[str, ...]
    enclosing: tuple[int, ...]
    revisions: tuple[tuple[tuple[str, int, str], int], ...]
    digest: int
    lines: tuple[SpooledLine, ...]
    numbers: bytes


class Built(Protocol):
    """A trajectory, or the encoded form of one that another process built."""

    @property
    def rollout_id(self) -> str:
        """The trajectory's `rollout_id`."""
        ...

    @property
    def trace_id(self) -> str:
        """The trajectory's `trace_id`."""
        ...

    @property
    def order(self) -> tuple[str, int, str]:
        """The trajectory's `order`: rollout id, attempt, trace id."""
        ...


Built_co = TypeVar("Built_co", bound=Built, covariant=True)


class Archive(Protocol):
    """A store on disk for the state of delivered spans, so that late spans find their rollout after any time."""

    def find(self, to: BelongsTo) -> GivenSpans | None:
        """Return the state of a rollout or trace; None where the archive has none."""
        ...

    def find_of_trace(self, trace_id: str) -> Iterable[GivenSpans]:
        """Return the states of all rollouts that have a span in this trace, and of the trace itself."""
        ...


class Together(NamedTuple):
    """Rollouts that are built in one go from `lines`, because they share traces; `due` are those to deliver.

    `digests` has the digest of each rollout's spans at this moment: a rollout whose digest is another one after the
    building got more spans meanwhile and is due again.
    """

    due: AbstractSet[BelongsTo]
    digests: Mapping[BelongsTo, int]
    lines: tuple[SpooledLine, ...]


class EndedRollout(NamedTuple, Generic[Built_co]):
    """The trajectory of a rollout that has ended.

    The trajectory can be built again from `lines`. `digest` identifies the set of spans that it was built from.
    """

    trajectory: Built_co
    revision: int
    lines: tuple[SpooledLine, ...]
    digest: int


class ArrivingRollouts:
    """Gathers arriving spans and says which rollouts have ended. Times are seconds of a clock that the caller reads.

    - `grace`: a rollout without an end counts as ended when no span of it came for so long.
    - `max_age`: a delivered rollout is forgotten when no span of it came for so long. A span that comes later becomes a
      trajectory of its own.
    - `archive`: where the caller keeps what `given` returns. Then a late span finds its rollout after any time.

    One round of delivery:

        rollouts.add(lines, now)
        for together in rollouts.together(rollouts.due(now), now):
            ended = rollouts.give(together, assemble(together.lines))
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
        """All rollouts of one trace are here, or all of them are in the archive."""
        self._new: OrderedDict[BelongsTo, None] = OrderedDict()
        """Rollouts with spans that were not delivered yet; the rollout that was quiet longest stands first."""
        self._ended: dict[BelongsTo, None] = {}
        """The rollouts of `_new` that have ended, the first to end first."""
        self._forgot_at = 0.0
        self._of_trace: dict[str, set[BelongsTo]] = {}

    def add(self, lines: Iterable[tuple[Sequence[Record], SpooledLine]], now: float) -> None:
        """Add the records of spooled lines. After all of them, each changed rollout is asked once if it has ended."""
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
        """Begin the grace of a rollout anew: a caller knows that it runs, although no span of it comes."""
        to: BelongsTo = ("rollout", rollout_id)
        if to in self._new:
            self._spans[to].changed = now
            self._new.move_to_end(to)

    @property
    def has_ended(self) -> bool:
        """Whether a rollout waits for delivery that has ended by its spans, without regard to the grace."""
        return bool(self._ended)

    @property
    def open(self) -> int:
        """How many rollouts, or traces, have spans that were not delivered."""
        return len(self._new)

    @property
    def open_lines(self) -> Iterator[SpooledLine]:
        """All lines of the rollouts that `open` counts, also those that were delivered before."""
        return chain.from_iterable(self._spans[to].lines for to in self._new)

    def due(self, now: float, at_most: int | None = None) -> frozenset[BelongsTo]:
        """The rollouts to deliver now: they have ended or were quiet for the grace, and have undelivered spans.

        At most the first `at_most` are returned: the ended ones first, then the longest quiet.
        """
        # `_new` is ordered by the time of the last span, so the search ends at the first rollout that is not quiet.
        due = chain(self._ended, takewhile(lambda to: is_quiet(self._spans[to].changed, now, self._grace), self._new))
        return frozenset(islice(due, at_most))

    def together(self, due: AbstractSet[BelongsTo], now: float) -> list[Together]:
        """Group the due rollouts with everything that must be built with them, as they stand now.

        Spans that come between this and `give` make their rollout due again.
        """
        # Not every time, because forgetting looks at all rollouts.
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
        """Return the deliveries of what was built from `together`, each with its revision.

        A rollout that got no span meanwhile is no longer due. A neighbor that was not due is delivered too, if the new
        spans of a shared trace changed a trajectory of it that was delivered before.
        """
        ended = list(self._ended_of(together, built))
        for to in together.due:
            self._spans[to].note_given()
            # No span came since `together`, so nothing is left to deliver.
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
        """Return the state to keep in the archive, for those rollouts of `together` that are fully delivered."""
        return [self._spans[to].as_given() for to in together.digests if to not in self._new]

    def lone_rewards(self, together: Together) -> dict[BelongsTo, int]:
        """Return the rollouts and traces of which only rewards came, with the number of these rewards."""
        return {to: count for to in together.digests if (count := self._spans[to].lone_rewards)}

    def _note_traces(self, to: BelongsTo, spans: "ArrivingSpans") -> None:
        for trace_id in spans.traces:
            self._of_trace.setdefault(trace_id, set()).add(to)

    def _recall(self, archive: Archive, to: BelongsTo, record: Record, now: float) -> None:
        """Load from the archive the rollout of a record, and all rollouts that share a trace with it, directly or not.

        For example rollouts A and B share trace 1, B and C share trace 2: a late span of A loads all three.
        """
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
        """Group the due rollouts with all that they need; groups that overlap become one."""
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
            if to not in together.digests:  # a line may hold spans of a rollout that is not built now
                continue
            spans = self._spans[to]
            revisions = spans.revisions
            earlier = revisions.get(trajectory.order)
            # A rollout that joins several traces is named after its first one, and a late span may have come from an
            # earlier trace: this is a new revision of the same rollout, not a second rollout.
            if earlier is None and spans.is_vague and to[0] == "rollout":
                earlier = max(revisions.values(), default=None)
            is_news = (earlier is not None or to not in self._new) and not vague.isdisjoint(spans.traces)
            is_due = to in together.due
            # Two attempts may share a rollout id, each with its own trace. Spans of one attempt are no news of the
            # other, which is not delivered again.
            if is_due and earlier is not None:
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
        """The digest of a rollout's spans, and of the spans in its traces that do not say where they belong."""
        neighbors = (other for trace_id in self._spans[to].traces for other in self._of_trace[trace_id])
        deciding = {to, *(other for other in neighbors if self._spans[other].is_vague)}
        return sum(together.digests.get(other, 0) for other in deciding) % (1 << _DIGEST_BITS)

    def _forget(self, before: float) -> None:
        """Forget delivered rollouts that were quiet since `before`, but only all rollouts of a trace at once."""
        old = {to for to, spans in self._spans.items() if spans.changed < before and to not in self._new}
        while kept := {
            to for to in old if not all(self._of_trace[trace_id] <= old for trace_id in self._spans[to].traces)
        }:
            old -= kept
        for to in old:
            for trace_id in self._spans.pop(to).traces:
                self._of_trace.pop(trace_id, None)


class ArrivingSpans:
    """The spans that came of one rollout, or of one trace whose spans name no rollout.

    - `traces`: the ids of the traces that the spans are in. `lines`: where the spans' lines stand.
    - `is_vague`: other spans of these traces may belong to the same rollout although they do not say so.
    - `changed`: the time at which the last new record came.
    - `revisions`: the last delivered revision of each trajectory, by its `order`.
    - `new_traces`: the traces with spans that no delivery has had yet.
    - `enclosing`: the numbers of the spans in which the rollout's own spans are nested.
    - `digest`: a hash of the set of records, the same in every process and for every order of arrival.
    - `lone_rewards`: how many rewards name this rollout or trace; None as soon as any other span of it came.
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
        """The span numbers of the index, kept when `forget_index` drops the rest of it."""
        self._given: dict[str | None, int] = {}
        """The digest of the delivered records, by trace."""
        self._building: dict[str | None, int] = {}
        """The digest of the records that are being built now, by trace."""

    @classmethod
    def of_given(cls, given: GivenSpans, rollout_attributes: Sequence[str] = ()) -> "ArrivingSpans":
        """Restore the spans from the state that an archive kept."""
        spans = cls(given.to, rollout_attributes)
        spans.is_vague, spans.digest, spans.lone_rewards = given.is_vague, given.digest, None
        spans.lines, spans.traces, spans.enclosing = list(given.lines), set(given.traces), set(given.enclosing)
        spans.revisions = dict(given.revisions)
        spans._index, spans._numbers = None, array("q", given.numbers)
        return spans

    def as_given(self) -> GivenSpans:
        """Return the state for an archive."""
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
        if self._index is None and line in self.lines:  # after a restart a spool is read again: no need for the index
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
        """Whether the spans that came say that the rollout has ended and is complete."""
        return self._indexed().has_ended

    def has(self, number: int) -> bool:
        """Whether the span with this number came (`span_number`)."""
        return number in self._numbers if self._index is None else self._index.has(number)

    def note_building(self) -> None:
        """Remember which records are here as a building begins; later ones are no part of its trajectory."""
        self._building = dict(self._indexed().by_trace)

    def note_given(self) -> None:
        """Note that the records of the last `note_building` were delivered."""
        self._given = self._building

    @property
    def changed_traces(self) -> set[str | None]:
        """The traces in which the records being built differ from those delivered before."""
        return {trace_id for trace_id, digest in self._building.items() if self._given.get(trace_id) != digest}

    def forget_index(self) -> None:
        """Free the index after delivery. Late spans are rare; for them the index is made again from the lines."""
        if self._index is not None:
            self._numbers = array("q", self._index.numbers)
            self._index = None

    def _indexed(self) -> "SpanIndex":
        """The index; made again from the spool where it was freed."""
        if self._index is None:
            self._index = SpanIndex()
            for record in read_records(self.lines):
                if self._to in belongs_to(record, self._rollout_attributes):
                    self._index.add(record)
            self._given = dict(self._index.by_trace)
        return self._index

    def _is_known(self, span: Span) -> bool:
        """Whether a gateway repeats its count of a rollout that another gateway was told is over.

        Several gateways may serve one rollout, and only one of them is told of the end. The others go on to write their
        editions, which hold nothing new as long as their counts are the same:

            gateway A: 2 calls, over       gateway B: 1 call, waits       gateway B again: 1 call, waits  ◄ True
        """
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
    """A `SpanTally` that also knows each record by its content, so that repeated ones are found."""

    __slots__ = ("_records", "by_trace")

    def __init__(self) -> None:
        super().__init__()
        self._records: set[int] = set()
        self.by_trace: dict[str | None, int] = {}
        """The digest of the records, by trace: exclusive or, because this does not depend on their order."""

    def add(self, record: Record) -> int | None:
        """Add a record; return a 64-bit hash of its content, or None if an equal record is here already."""
        # Eight bytes stand for a record, which is not kept.
        content = int.from_bytes(blake2b(msgspec.msgpack.encode(record), digest_size=8).digest())
        if content in self._records:
            return None
        self._records.add(content)
        self.by_trace[record.trace_id] = self.by_trace.get(record.trace_id, 0) ^ content
        if isinstance(record, Span):
            self.add_span(record)
        return content


def belongs_to(record: Record, rollout_attributes: Sequence[str] = ()) -> Iterator[BelongsTo]:
    """The rollouts and traces that a record belongs to.

    By the kind of the record:

        span with art.rollout.id "r1"                        rollout r1
        span with session.id "s1", joined by that attribute  rollout s1
        span with neither                                    its trace
        reward span with links, without a rollout id         its trace, and the traces of the linked spans
        log record with a reward for rollout "r1"            rollout r1, and its trace
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
