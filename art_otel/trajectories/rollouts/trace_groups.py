"""TraceGroups: which traces are assembled together.

Invariant: two traces are linked when spans of both say that they belong to one rollout id, and traces linked to one
trace are linked to each other. Rewards link no traces: they are delivered.
"""

import re
from typing import Final

from art_otel.spans import Span
from art_otel.trajectories.rollouts.marks import declared_id

_OF_TRACE: Final = re.compile("([0-9a-f]{32})(?:-[0-9a-f]{16})?")
"""The id of a rollout that declares none: its trace id, for further roots of the trace with the span id."""


class TraceGroups:
    """A disjoint set of traces. Ask it only after every span was added."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._first_of_rollout: dict[str, str] = {}

    def add(self, span: Span) -> None:
        """Link the span's trace to those of its rollout id."""
        rollout_id = declared_id(span)
        if rollout_id is not None:
            self._union(span.trace_id, self._first_of_rollout.setdefault(rollout_id, span.trace_id))

    def merge(self, other: "TraceGroups") -> None:
        """Add the traces and links of another process."""
        for trace_id, parent in other._parent.items():  # noqa: SLF001 # of its own class, here and below
            self._union(trace_id, parent)
        for rollout_id, trace_id in other._first_of_rollout.items():  # noqa: SLF001
            self._union(trace_id, self._first_of_rollout.setdefault(rollout_id, trace_id))

    def representative(self, trace_id: str) -> str:
        """The smallest id among the traces that are linked to this one."""
        while (parent := self._parent.get(trace_id, trace_id)) != trace_id:
            self._parent[trace_id] = self._parent.get(parent, parent)
            trace_id = parent
        return trace_id

    def linked(self) -> list[str]:
        """The traces whose representative is another trace."""
        return [trace_id for trace_id in self._parent if self.representative(trace_id) != trace_id]

    def trace_of(self, rollout_id: str) -> str | None:
        """A trace of a rollout id; of a rollout without one, the trace for which it is named."""
        unnamed = _OF_TRACE.fullmatch(rollout_id)
        return self._first_of_rollout.get(rollout_id) or (unnamed[1] if unnamed else None)

    def _union(self, first: str, second: str) -> None:
        low, high = sorted((self.representative(first), self.representative(second)))
        if low != high:
            self._parent[high] = low
