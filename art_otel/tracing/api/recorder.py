"""Recorder: what the public API asks of whatever records rollouts in this process (`live.RolloutBuffer`).

Invariant: at most one recorder is in use in a process. Without one (tracing is off, or the app exports spans by its own
means) the API still makes its spans and knows nothing of what became of them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from art_otel import attributes

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from art_otel.calls import InferenceCall
    from art_otel.live import SpanCounts
    from art_otel.trajectories import Trajectory


class Recorder(Protocol):
    """Where running rollouts are recorded."""

    @property
    def calls_outside(self) -> int:
        """How many LLM calls began in this process outside of every rollout that the app has begun."""
        ...

    def counts(self, rollout_id: str) -> "SpanCounts | None":
        """How many spans the rollout has so far; None for one that is not known here."""
        ...

    def has_llm_calls(self, rollout_id: str) -> bool:
        """Whether an LLM call of the rollout began here; no line is read for it."""
        ...

    def calls(self, rollout_id: str) -> "tuple[InferenceCall, ...]":
        """The LLM calls recorded so far, the same object until there is more. Empty for one that is not known here."""
        ...

    def trajectories(self, rollout_ids: Sequence[str]) -> "Mapping[str, Trajectory]":
        """The trajectories of rollouts that are known here, by id, as far as they are recorded."""
        ...

    def has_ended(self, rollout_id: str) -> bool:
        """Whether every span of the rollout has ended, its root too, or nothing is known of it here."""
        ...

    @property
    def grace(self) -> float:
        """How many seconds late spans are waited for."""
        ...

    def keep(self, rollout_id: str) -> None:
        """Hold all of a rollout until `release`, however much it is."""
        ...

    def release(self, rollout_id: str) -> None:
        """Let a rollout go that `keep` holds."""
        ...


_in_use: Recorder | None = None


def use_recorder(recorder: Recorder | None) -> None:
    """Make this recorder the one in use."""
    global _in_use  # noqa: PLW0603 # one a process, as the tracer provider is
    _in_use = recorder


def recorder() -> Recorder | None:
    """Return the recorder in use; None where nothing records."""
    return _in_use


def record_span_counts(span: "Span", counts: "SpanCounts | None") -> None:
    """Put on a rollout's span how many others it has, so that who reads a dump knows whether all are there."""
    if counts is not None:
        span.set_attribute(attributes.SPANS_STARTED, counts.started)
        span.set_attribute(attributes.SPANS_ENDED, counts.ended)
