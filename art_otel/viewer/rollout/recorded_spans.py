"""RecordedSpans: all spans of a rollout's trace, from the dumps that a dataset was converted from."""

import threading
from collections.abc import Sequence

from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.trajectories import Trajectory


class RecordedSpans:
    """The spans of dumps by their traces, without attributes; they are read when they are first asked for."""

    def __init__(self, dumps: Sequence[str]) -> None:
        self._inputs = list(find_inputs(list(dumps)))
        self._by_trace: dict[str, list[Span]] | None = None
        self._lock = threading.Lock()

    def of(self, trajectory: Trajectory) -> list[Span]:
        """The spans of the trajectory's traces. Raises SourceError."""
        with self._lock:
            if self._by_trace is None:
                self._by_trace = self._read()
            traces = {trajectory.trace_id, *(call.trace_id for call in trajectory.calls)}
            return [span for trace_id in sorted(traces) for span in self._by_trace.get(trace_id, [])]

    def _read(self) -> dict[str, list[Span]]:
        spans: dict[tuple[str, str], Span] = {}
        for each in self._inputs:
            for record in read_file(each, FileStats()):
                if isinstance(record, Span):
                    spans[record.key] = Span(
                        trace_id=record.trace_id,
                        span_id=record.span_id,
                        parent_span_id=record.parent_span_id,
                        name=record.name,
                        start_ns=record.start_ns,
                        end_ns=record.end_ns,
                    )
        by_trace: dict[str, list[Span]] = {}
        for span in spans.values():
            by_trace.setdefault(span.trace_id, []).append(span)
        return by_trace
