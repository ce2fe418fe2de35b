"""TraceGroups: which traces are assembled together.

Invariant: two traces are linked when spans of both say that they belong to one rollout id, and traces linked to one
trace are linked to each other. Rewards link no traces: they are delivered.
"""

import re
from typing import Final

from art_otel.spans import Span
from art_otel.trajectories.rollouts.marks import declared_id

_OF_TRACE: Final = re.compile("([0-9a-f]{32})(?:-[0-9a-f]{16})?")
"""The id of a rollout to which nobody gave one."""


class TraceGroups:
    """A disjoint set of traces. Ask it only after every span was added."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self._first_of_rollout: dict[str, str] = {}

    def add(self, span: Span) -> None:
        """Link the span's trace to those of its rollout id."""
        rollout_id = declared_id(span)
        if rollout_id is not None:
            self._unite(span.trace_id, self._first_of_rollout.setdefault(rollout_id, span.trace_id))

    def merge(self, other: "TraceGroups") -> None:
        """Add what another process was given."""
        for trace_id, above in other._above.items():  # noqa: SLF001 # of its own class, here and below
            self._unite(trace_id, above)
        for rollout_id, trace_id in other._first_of_rollout.items():  # noqa: SLF001
            self._unite(trace_id, self._first_of_rollout.setdefault(rollout_id, trace_id))

    def representative(self, trace_id: str) -> str:
        """The smallest id among the traces that are linked to this one."""
        while (above := self._above.get(trace_id, trace_id)) != trace_id:
            self._above[trace_id] = self._above.get(above, above)
            trace_id = above
        return trace_id

    def linked(self) -> list[str]:
        """The traces whose representative is another trace."""
        return [trace_id for trace_id in self._above if self.representative(trace_id) != trace_id]

    def trace_of(self, rollout_id: str) -> str | None:
        """A trace of a rollout id; of a rollout without one, the trace after which it is called."""
        unnamed = _OF_TRACE.fullmatch(rollout_id)
        return self._first_of_rollout.get(rollout_id) or (unnamed[1] if unnamed else None)

    def _unite(self, first: str, second: str) -> None:
        low, high = sorted((self.representative(first), self.representative(second)))
        if low != high:
            self._above[high] = low
