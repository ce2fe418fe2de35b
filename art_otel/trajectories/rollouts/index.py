"""RolloutIndex: the rollouts that a span may be of, because it has their id or is in their trace.

Invariant: rollouts of one id are told apart by the trace, the attempt and the time of their roots only.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.spans.intervals import IntervalIndex
from art_otel.trajectories.rollouts.attributes import attempt_of

_K = TypeVar("_K")


class RolloutSpans(msgspec.Struct, kw_only=True, eq=False):
    """The spans of one rollout and their keys. `root` is its own span, None when that is missing."""

    rollout_id: str
    root: Span | None
    parent_rollout_id: str | None = None
    spans: list[Span] = msgspec.field(default_factory=list[Span])
    keys: list[SpanKey] = msgspec.field(default_factory=list[SpanKey])

    @property
    def order(self) -> tuple[str, str, str]:
        """A sort key that no delivery changes."""
        first = self.root or self.spans[0]
        return (self.rollout_id, first.trace_id, first.span_id)


class RolloutIndex(msgspec.Struct, kw_only=True, eq=False):
    """The rollouts of one id or of one trace, in the order they were added: those with a root come first."""

    tree: SpanTree
    all: list[RolloutSpans] = msgspec.field(default_factory=list[RolloutSpans])
    rootless: RolloutSpans | None = None
    _running: IntervalIndex[RolloutSpans] | None = None
    _by_trace: "dict[str, RolloutIndex] | None" = None
    _by_attempt: "dict[int | None, RolloutIndex] | None" = None

    def add(self, rollout: RolloutSpans) -> None:
        """Add a rollout. Those without a root are not indexed by trace or time."""
        self.all.append(rollout)
        if rollout.root is not None:
            self._running = self._by_trace = self._by_attempt = None
        elif self.rootless is None:
            self.rootless = rollout

    def of_trace(self, trace_id: str) -> "RolloutIndex | None":
        """The rollouts whose own span is in the trace."""
        if self._by_trace is None:
            self._by_trace = self._by(lambda root: root.trace_id)
        return self._by_trace.get(trace_id)

    def of_attempt(self, number: int) -> "RolloutIndex | None":
        """The rollouts that are attempts of this number."""
        if self._by_attempt is None:
            self._by_attempt = self._by(attempt_of)
        return self._by_attempt.get(number)

    def running_at_start(self, key: SpanKey) -> RolloutSpans | None:
        """The rollout that was running when the span started, if just one was."""
        return self.running_at(self.tree.starts[key])

    def running_at(self, time_ns: int) -> RolloutSpans | None:
        """The rollout that was running at a time, if just one was."""
        return self._intervals().only_at(time_ns)

    def count_candidates(self, starts: Iterable[int]) -> Iterator[tuple[RolloutSpans, int]]:
        """How many spans, known by their starts, may be of each rollout: of those that ran then, else of all."""
        outside, inside = list[int](), list[int]()
        for start in starts:
            (inside if self._intervals().count_at(start) else outside).append(start)
        inside.sort()
        for first, last, rollout in self._times():
            ended = len(inside) if last is None else bisect_right(inside, last)
            yield rollout, ended - bisect_left(inside, first) + len(outside)

    def _intervals(self) -> IntervalIndex[RolloutSpans]:
        if self._running is None:
            self._running = IntervalIndex(self._times())
        return self._running

    def _by(self, trait: Callable[[Span], _K]) -> "dict[_K, RolloutIndex]":
        indexes: dict[_K, RolloutIndex] = {}
        for rollout in self.all:
            if rollout.root is not None:
                indexes.setdefault(trait(rollout.root), RolloutIndex(tree=self.tree)).add(rollout)
        return indexes

    def _times(self) -> Iterator[tuple[int, int | None, RolloutSpans]]:
        for rollout in self.all:
            if rollout.root is not None:
                first, root = self.tree.starts[rollout.root.key], rollout.root
                yield first, None if root.end_ns is None else first + root.end_ns - root.start_ns, rollout
