"""Timeline: what ran when in a rollout: calls, tools, steps, rewards, and with the dumps all spans."""

from collections.abc import Iterator, Sequence
from typing import Any

from art_otel.spans import Span
from art_otel.trajectories import Trajectory

_MS = 1e6


def timeline(trajectory: Trajectory, spans: Sequence[Span] = ()) -> tuple[list[dict[str, Any]], float | None]:
    """The entries by their start, and how long all took. Milliseconds count from the first start."""
    starts = [one.start_ns for one in (*trajectory.calls, *trajectory.tool_calls, *spans)]
    if trajectory.started_at is not None:
        starts.append(trajectory.started_at)
    begin = min(starts, default=None)
    if begin is None:
        return [], None
    entries = sorted(
        [
            *_calls(trajectory),
            *_tools(trajectory),
            *_steps(trajectory),
            *_rewards(trajectory),
            *_spans(spans, trajectory),
        ],
        key=lambda entry: (entry["startMs"], entry["depth"]),
    )
    for entry in entries:
        entry["startMs"] = (entry["startMs"] - begin) / _MS
        entry["endMs"] = None if entry["endMs"] is None else (entry["endMs"] - begin) / _MS
    ends: list[float] = [entry["startMs"] if entry["endMs"] is None else entry["endMs"] for entry in entries]
    if trajectory.ended_at is not None:
        ends.append((trajectory.ended_at - begin) / _MS)
    return entries, max(ends, default=None)


def _entry(  # an entry has these
    kind: str,
    name: str | None,
    start: int,
    end: int | None,
    *,
    turn: int | None = None,
    error: str | None = None,
    depth: int = 1,
) -> dict[str, Any]:
    return {"kind": kind, "name": name, "startMs": start, "endMs": end, "turn": turn, "error": error, "depth": depth}


def _calls(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    first_turn = {turn.call: position for position, turn in reversed(list(enumerate(trajectory.turns)))}
    for position, call in enumerate(trajectory.calls):
        name = call.response_model or call.request_model or call.operation_name
        error = call.error or call.error_type
        yield _entry("call", name, call.start_ns, call.end_ns, turn=first_turn.get(position), error=error)


def _tools(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for tool in trajectory.tool_calls:
        yield _entry("tool", tool.name, tool.start_ns, tool.end_ns, turn=tool.turn, error=tool.error)


def _steps(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """A step lasts from the first start to the last end of its calls, because the data says no more of it."""
    for step in sorted({call.step for call in trajectory.calls if call.step is not None}):
        calls = [call for call in trajectory.calls if call.step == step]
        ends = [call.end_ns for call in calls if call.end_ns is not None]
        yield _entry("step", f"step {step}", min(call.start_ns for call in calls), max(ends, default=None), depth=0)


def _rewards(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for reward in trajectory.rewards:
        shown = reward.label if reward.value is None else f"{reward.value:g}"
        yield _entry("reward", f"{reward.name} {shown}", reward.time_ns, None, depth=0)


def _spans(spans: Sequence[Span], trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The spans that are neither calls nor tools, with their depth in the trace."""
    shown = {call.span_id for call in trajectory.calls} | {tool.span_id for tool in trajectory.tool_calls}
    parents = {span.span_id: span.parent_span_id for span in spans}
    for span in spans:
        if span.span_id not in shown:
            depth, above = 0, parents.get(span.span_id)
            while above in parents and depth < len(parents):
                depth, above = depth + 1, parents[above]
            yield _entry("span", span.name, span.start_ns, span.end_ns, depth=depth)
