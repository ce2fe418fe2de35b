"""ArrivingSpans: spans that say the same of where they belong: by a rollout id, or by their trace alone.

Invariant: memory holds where their lines stand, and each record as a number until it was given. One that comes again is
not there twice.
"""

from array import array
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.conventions import rewards_of
from art_otel.live.assembly import read_records
from art_otel.live.span_index import SpanIndex, span_number
from art_otel.sources import Record
from art_otel.spans import Span
from art_otel.spool import SpooledLine
from art_otel.trajectories.span_context import is_marked_root, is_provisional, is_reward_span

BelongsTo: TypeAlias = tuple[Literal["rollout", "trace"], str]
"""The id of a rollout, or of a trace."""


def belongs_to(record: Record) -> Iterator[BelongsTo]:
    """Where a record says that it belongs; a reward that says it by its links, to the traces of what it judges."""
    rollout_id = record.attributes.get(attributes.ROLLOUT_ID) if isinstance(record, Span) else None
    if rollout_id is not None and rollout_id != "":
        yield ("rollout", str(rollout_id))
        return
    if record.trace_id:
        yield ("trace", record.trace_id)
    if isinstance(record, Span) and record.links and rewards_of(record):
        for trace_id in {link.trace_id for link in record.links} - {record.trace_id}:
            yield ("trace", trace_id)


class GivenSpans(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of spans that were given, as an archive keeps it. The fields are those of ArrivingSpans."""

    to: BelongsTo
    is_vague: bool
    traces: tuple[str, ...]
    enclosing: tuple[int, ...]
    revisions: tuple[tuple[tuple[str, int, str], int], ...]
    digest: int
    lines: tuple[SpooledLine, ...]
    spans: bytes


class ArrivingSpans:
    """`is_vague` says that others of their traces may be of the same rollout; `changed` is when the last one came.

    `revisions` are those of the trajectories that were given, by their `order`. `traces` are the ids of their traces.
    `enclosing` are the numbers of the spans that their roots are nested in. `digest` is of their contents, the same in
    every process. `lone_rewards` is how many rewards name this rollout or trace, as long as nothing else is of it.
    """

    __slots__ = (
        "_index",
        "_spans",
        "_to",
        "changed",
        "digest",
        "enclosing",
        "is_vague",
        "lines",
        "lone_rewards",
        "revisions",
        "traces",
    )

    def __init__(self, to: BelongsTo) -> None:
        self._to = to
        self.is_vague = to[0] == "trace"
        self.lines: list[SpooledLine] = []
        self.traces: set[str] = {to[1]} if self.is_vague else set()
        self.enclosing: set[int] = set()
        self.revisions: dict[tuple[str, int, str], int] = {}
        self.changed = 0.0
        self.digest = 0
        self.lone_rewards: int | None = 0
        self._index: SpanIndex | None = SpanIndex()
        self._spans = array("q")

    @classmethod
    def of_given(cls, given: GivenSpans) -> "ArrivingSpans":
        """Go on with what an archive kept."""
        spans = cls(given.to)
        spans.is_vague, spans.digest, spans.lone_rewards = given.is_vague, given.digest, None
        spans.lines, spans.traces, spans.enclosing = list(given.lines), set(given.traces), set(given.enclosing)
        spans.revisions = dict(given.revisions)
        spans._index, spans._spans = None, array("q", given.spans)
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
            spans=(self._spans if self._index is None else array("q", self._index.spans)).tobytes(),
        )

    def add(self, record: Record, line: "SpooledLine", now: float) -> bool:
        """Add a record of a line; return whether it is new."""
        if self._index is None and line in self.lines:  # a spool that is read again
            return False
        content = self._indexed().add(record)
        if content is None:
            return False
        self.digest ^= content
        if isinstance(record, Span):
            self._note(record)
        if not self.lines or self.lines[-1] is not line:
            self.lines.append(line)
        self.changed = now
        return True

    @property
    def has_ended(self) -> bool:
        """As SpanIndex."""
        return self._indexed().has_ended

    def has(self, span: int) -> bool:
        """As SpanIndex."""
        return span in self._spans if self._index is None else self._index.has(span)

    def forget_index(self) -> None:
        """Hold less: mostly nothing more comes of what was given, and if so, its lines are read once more."""
        if self._index is not None:
            self._spans = array("q", self._index.spans)
            self._index = None

    def _indexed(self) -> SpanIndex:
        if self._index is None:
            self._index = SpanIndex()
            for record in read_records(self.lines):
                if self._to in belongs_to(record):
                    self._index.add(record)
        return self._index

    def _note(self, span: Span) -> None:
        self.is_vague = self.is_vague or is_provisional(span)
        if not is_reward_span(span):
            self.lone_rewards = None
        elif self.lone_rewards is not None and (self._to != ("trace", span.trace_id) or not span.links):
            self.lone_rewards += 1
        if self._to[0] == "rollout":
            self.traces.add(span.trace_id)
        if span.parent_span_id is not None and is_marked_root(span):
            self.enclosing.add(span_number(span.trace_id, span.parent_span_id))
