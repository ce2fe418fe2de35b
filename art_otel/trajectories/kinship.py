"""Kinship: which traces belong together.

Invariant: two traces are kin when spans of both carry one rollout id, or when a reward given in one links to a span of
the other; kin of kin are kin. Only kin are ever assembled together, so a group is as small as it can be.
"""

from collections.abc import Iterator

from art_otel.conventions import rewards_of
from art_otel.spans import Span
from art_otel.trajectories.rollouts import declared_id


class Kinship:
    """A growing union of traces; ask it only after every span was seen."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self._first_of_rollout: dict[str, str] = {}

    def see(self, span: Span) -> None:
        """Note what the span says about its trace's kin."""
        for trace_id in self._kin(span):
            self._unite(span.trace_id, trace_id)

    def head(self, trace_id: str) -> str:
        """The trace that stands for all kin of this one: the smallest id among them."""
        while (above := self._above.get(trace_id, trace_id)) != trace_id:
            self._above[trace_id] = self._above.get(above, above)
            trace_id = above
        return trace_id

    def with_kin(self) -> list[str]:
        """The traces whose head is another trace."""
        return [trace_id for trace_id in self._above if self.head(trace_id) != trace_id]

    def _kin(self, span: Span) -> Iterator[str]:
        rollout_id = declared_id(span)
        if rollout_id is not None:
            yield self._first_of_rollout.setdefault(rollout_id, span.trace_id)
        if span.links and any(rewards_of(span)):
            yield from (link.trace_id for link in span.links)

    def _unite(self, first: str, second: str) -> None:
        low, high = sorted((self.head(first), self.head(second)))
        if low != high:
            self._above[high] = low
