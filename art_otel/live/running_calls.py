"""RunningCalls: the LLM calls of a rollout that runs, read as its lines come.

Invariant: each look reads the lines that are new and builds the calls that had not ended at the look before, so it
costs what is new. A call that has ended while none ran is settled: whatever recorded it has been read.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from art_otel.live.assembly import Line, by_rollout_id, read_spans

if TYPE_CHECKING:
    from art_otel.calls import InferenceCall
    from art_otel.spans import Span, SpanKey


class RunningCalls:
    """`update` gives the calls of the lines so far."""

    def __init__(self, rollout_id: str) -> None:
        self._rollout_id = rollout_id
        self._lines_read = 0
        self._settled: tuple[InferenceCall, ...] = ()
        self._unsettled: dict[SpanKey, Span] = {}
        """Spans of calls that are not settled."""
        self._others: dict[SpanKey, Span] = {}
        """Spans of steps, agents, tools and whatever else calls lie in."""
        self._calls: tuple[InferenceCall, ...] = ()

    def update(self, lines: Sequence[Line]) -> "tuple[InferenceCall, ...]":
        """The calls of all these lines, of which the first are those of the update before."""
        new_lines = lines[self._lines_read :]
        if not new_lines:
            return self._calls
        self._lines_read += len(new_lines)
        self._sort(read_spans(new_lines))
        if not self._unsettled:
            return self._calls
        new = self._built(list(self._unsettled.values()))
        if any(call.previous_response_id is not None for call in new):  # its prompt is that of an earlier call too
            self._calls = _calls_of(self._rollout_id, read_spans(lines[: self._lines_read]))
            return self._calls
        self._calls = (*self._settled, *new)
        if all(span.end_ns is not None for span in self._unsettled.values()):
            self._settled = self._calls
            self._unsettled.clear()
        return self._calls

    def _sort(self, spans: "Sequence[Span]") -> None:
        from art_otel.conventions import role_of  # noqa: PLC0415 # only who looks loads the conventions

        for span in spans:
            by_key = self._unsettled if role_of(span) == "inference" else self._others
            earlier = by_key.get(span.key)
            if earlier is None or earlier.end_ns is None:
                by_key[span.key] = span
            if by_key is self._unsettled:
                self._others.pop(span.key, None)

    def _built(self, calls: "list[Span]") -> "tuple[InferenceCall, ...]":
        """The calls of these spans, which need the spans that they lie in."""
        around: dict[SpanKey, Span] = {}
        for call in calls:
            span: Span | None = call
            while span is not None and span.parent_span_id is not None:
                key = (span.trace_id, span.parent_span_id)
                span = None if key in around else self._others.get(key)
                if span is not None:
                    around[key] = span
        return _calls_of(self._rollout_id, [*around.values(), *calls])


def _calls_of(rollout_id: str, spans: "Sequence[Span]") -> "tuple[InferenceCall, ...]":
    from art_otel.trajectories import SpanGroup, build_trajectories  # noqa: PLC0415 # as above

    trajectory = by_rollout_id(build_trajectories(SpanGroup(spans=spans)).trajectories).get(rollout_id)
    return () if trajectory is None else trajectory.calls
