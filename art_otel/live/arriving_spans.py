"""ArrivingSpans: spans that say the same of where they belong: by a rollout id, or by their trace alone.

Invariant: memory holds where their lines stand, and each record as a number. One that comes again is not there twice.
"""

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from art_otel.spool import SpooledLine

if TYPE_CHECKING:
    from art_otel.sources import Record
    from art_otel.spans import Span

BelongsTo: TypeAlias = tuple[Literal["rollout", "trace"], str]
"""The id of a rollout, or of a trace."""


class ArrivingSpans:
    """`is_vague` says that others of their traces may be of the same rollout; `changed` is when the last one came.

    `revisions` are those of the trajectories that were given, by their `order`. `traces` are the ids of their traces.
    `enclosing` are the numbers of the spans that their roots are nested in.
    """

    def __init__(self, to: BelongsTo) -> None:
        self.is_vague = self._is_of_trace = to[0] == "trace"
        self.lines: list[SpooledLine] = []
        self.traces: set[str] = {to[1]} if self._is_of_trace else set()
        self.enclosing: set[int] = set()
        self.revisions: dict[tuple[str, int, str], int] = {}
        self.changed = 0.0
        self._seen: set[int] = set()
        self._ended: set[int] = set()
        self._running: set[int] = set()
        self._roots: dict[int, int | None] = {}
        self._counted = 0

    def add(self, record: "Record", place: SpooledLine, now: float) -> bool:
        """Take a record, and say whether it is news."""
        from art_otel.spans import Span  # noqa: PLC0415 # only who reads loads the records

        content = hash(msgspec.msgpack.encode(record))
        if content in self._seen:
            return False
        self._seen.add(content)
        if isinstance(record, Span):
            self._note(record)
        if not self.lines or self.lines[-1] is not place:
            self.lines.append(place)
        self.changed = now
        return True

    @property
    def has_ended(self) -> bool:
        """Whether every span that began has ended, and there are as many as the rollout's own span counted."""
        if not self._roots or self._running:
            return False
        counts = [count for count in self._roots.values() if count is not None]
        return len(counts) == len(self._roots) and self._counted >= sum(counts)

    def has(self, span: int) -> bool:
        """Whether a span, by its number, is one of these."""
        return span in self._ended or span in self._running

    def _note(self, span: "Span") -> None:
        from art_otel.trajectories.accounting.span_counts import spans_counted_on  # noqa: PLC0415 # as above
        from art_otel.trajectories.rollouts.marks import is_marked_root, is_provisional, is_reward_span  # noqa: PLC0415 # as above

        number = hash(span.key)
        is_root = is_marked_root(span)
        self.is_vague = self.is_vague or is_provisional(span)
        if is_root and span.parent_span_id is not None:
            self.enclosing.add(hash((span.trace_id, span.parent_span_id)))
        if not self._is_of_trace:
            self.traces.add(span.trace_id)
        if number in self._ended:
            return
        if span.end_ns is None:
            self._running.add(number)
            return
        self._running.discard(number)
        self._ended.add(number)
        if is_root:
            self._roots[number] = spans_counted_on(span)
        elif span.parent_span_id is not None or not is_reward_span(span):  # nobody counts rewards given later
            self._counted += 1
