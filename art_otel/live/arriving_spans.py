"""ArrivingSpans: spans that say the same of where they belong, and whether these are all of them.

They say it by a rollout id, or by their trace alone.

Invariant: memory holds where their lines stand, and each record as a number until it was given. One that comes again is
not there twice, and a gateway that was quiet is no news of a rollout that somebody ended. What a rollout's own span
counts is compared with spans of its process only.
"""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.conventions import rewards_of, rewards_of_log
from art_otel.live.assembly import read_records
from art_otel.live.gateway_parts import GatewayParts, is_gateway_call, says_the_end
from art_otel.sources import Record
from art_otel.spans import LogRecord, Resource, Span
from art_otel.spool import SpooledLine
from art_otel.trajectories.rollout_span import (
    calls_counted_on,
    is_marked_root,
    is_provisional,
    is_reward_span,
    is_rollout_span,
    joined_id,
    may_be_one_process,
    spans_counted_on,
)

BelongsTo: TypeAlias = tuple[Literal["rollout", "trace"], str]
"""The id of a rollout, or of a trace."""


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


class ArrivingSpans:
    """`is_vague` says that others of their traces may be of the same rollout; `changed` is when the last one came.

    `revisions` are those of the trajectories that were given, by their `order`. `traces` are the ids of their traces.
    `new_traces` are those of which something came that no trajectory of them was given with.
    `enclosing` are the numbers of the spans that their roots are nested in. `digest` is of their contents, the same in
    every process. `lone_rewards` is how many rewards name this rollout or trace, as long as nothing else is of it.
    """

    __slots__ = (
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
        return self._index

    def _is_known(self, span: Span) -> bool:
        """Whether a gateway that knows of no end says what it said before somebody told another one of an end."""
        if not is_marked_root(span) or says_the_end(span):
            return False
        says = _numbers_of(span)
        return bool(says) and all(map(self.has, {*says, _end_number(span)}))

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


def span_number(trace_id: str, span_id: str) -> int:
    """Give the number of a span, the same in every process."""
    return int.from_bytes(blake2b(f"{trace_id} {span_id}".encode(), digest_size=8).digest(), signed=True)


def _end_number(edition: Span) -> int:
    """The number of the end that somebody said to a gateway."""
    return span_number(edition.trace_id, f"{edition.span_id} end")


def _numbers_of(edition: Span) -> set[int]:
    """The numbers of what a gateway says in an edition of a rollout's own span; none where it is no gateway's."""
    counts = calls_counted_on(edition).items()
    numbers = {span_number(edition.trace_id, f"{edition.span_id} {gateway} {calls}") for gateway, calls in counts}
    return {*numbers, _end_number(edition)} if numbers and says_the_end(edition) else numbers


class SpanTally:
    """Says of the spans that were added whether they are all of the rollout."""

    __slots__ = ("_counted", "_ended", "_gateways", "_roots", "_running", "_told")

    def __init__(self) -> None:
        self._ended: set[int] = set()
        self._told: set[int] = set()
        """The numbers of what gateways said."""
        self._gateways = GatewayParts()
        self._running: set[int] = set()
        self._roots: dict[int, tuple[int | None, Resource]] = {}
        self._counted: list[tuple[Resource, int]] = []
        """Ended spans besides the roots, by the resource of their process."""

    @property
    def has_ended(self) -> bool:
        """Whether every span that began has ended, and there are as many as the rollout's own span counted."""
        if self._running or not (self._roots or self._gateways.is_any):
            return False
        if self._gateways.is_any and not self._gateways.has_ended:
            return False
        counts = [count for count, _ in self._roots.values() if count is not None]
        return len(counts) == len(self._roots) and self._of_roots() >= sum(counts)

    @property
    def numbers(self) -> set[int]:
        """The numbers of what is here: spans, and what gateways said."""
        return self._ended | self._running | self._told

    def has(self, number: int) -> bool:
        """Whether something is here, by its number."""
        return number in self._ended or number in self._running or number in self._told

    def add_span(self, span: Span) -> None:
        """Take a span."""
        number = span_number(span.trace_id, span.span_id)
        is_root = is_marked_root(span)
        if is_root and (says := _numbers_of(span)):
            self._told |= {number, *says}
            self._gateways.add_edition(span)
            return
        if number in self._ended:
            return
        if span.end_ns is None:
            self._running.add(number)
            return
        self._running.discard(number)
        self._ended.add(number)
        if is_gateway_call(span):
            self._gateways.add_call(span)
        if is_root:
            self._roots[number] = (spans_counted_on(span), span.resource)
        elif span.parent_span_id is not None or not is_reward_span(span):  # nobody counts rewards given later
            self._count(span.resource)

    def _count(self, resource: Resource) -> None:
        for position, (counted_resource, count) in enumerate(self._counted):
            if counted_resource is resource or counted_resource == resource:
                self._counted[position] = (resource, count + 1)
                return
        self._counted.append((resource, 1))

    def _of_roots(self) -> int:
        """How many spans the processes of the roots have: those of other services stand for none of them."""
        processes = [resource for _, resource in self._roots.values()]
        return sum(
            count
            for resource, count in self._counted
            if any(may_be_one_process(resource, process) for process in processes)
        )


class SpanIndex(SpanTally):
    """Says of the records that were added whether they are all of the rollout."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        super().__init__()
        self._records: set[int] = set()

    def add(self, record: Record) -> int | None:
        """Take a record, and give the number of its content; None for one that is here."""
        content = int.from_bytes(blake2b(msgspec.msgpack.encode(record), digest_size=8).digest())
        if content in self._records:
            return None
        self._records.add(content)
        if isinstance(record, Span):
            self.add_span(record)
        return content
