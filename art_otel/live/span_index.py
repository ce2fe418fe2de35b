"""SpanTally and SpanIndex: which spans and records of a rollout are here, and whether these are all.

Invariant: a record is a number, and one that comes again is not here twice. What a rollout's own span counts is
compared with spans of its process only.
"""

from hashlib import blake2b

import msgspec

from art_otel.sources import Record
from art_otel.spans import Resource, Span
from art_otel.trajectories.span_context import (
    is_marked_root,
    is_reward_span,
    may_be_one_process,
    spans_counted_on,
)


def span_number(trace_id: str, span_id: str) -> int:
    """Give the number of a span, the same in every process."""
    return int.from_bytes(blake2b(f"{trace_id} {span_id}".encode(), digest_size=8).digest(), signed=True)


class SpanTally:
    """Says of the spans that were added whether they are all of the rollout."""

    __slots__ = ("_counted", "_ended", "_roots", "_running")

    def __init__(self) -> None:
        self._ended: set[int] = set()
        self._running: set[int] = set()
        self._roots: dict[int, tuple[int | None, Resource]] = {}
        self._counted: list[tuple[Resource, int]] = []
        """Ended spans besides the roots, by the resource of their process."""

    @property
    def has_ended(self) -> bool:
        """Whether every span that began has ended, and there are as many as the rollout's own span counted."""
        if not self._roots or self._running:
            return False
        counts = [count for count, _ in self._roots.values() if count is not None]
        return len(counts) == len(self._roots) and self._of_roots() >= sum(counts)

    @property
    def spans(self) -> set[int]:
        """The spans that are here, by their numbers."""
        return self._ended | self._running

    def has(self, span: int) -> bool:
        """Whether a span, by its number, is here."""
        return span in self._ended or span in self._running

    def add_span(self, span: Span) -> None:
        """Take a span."""
        number = span_number(span.trace_id, span.span_id)
        if number in self._ended:
            return
        if span.end_ns is None:
            self._running.add(number)
            return
        self._running.discard(number)
        self._ended.add(number)
        if is_marked_root(span):
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
