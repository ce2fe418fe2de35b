"""RolloutSampler: rollouts are recorded whatever the app samples, and its other spans are sampled as before.

Invariant: what the app's sampler lets through stays exactly as it decided. What it drops is recorded only here (the
sampled flag stays off, so that exporters leave it out) and only inside a rollout.
"""

from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes


class RolloutSampler(Sampler):
    """`inner` decides; `belongs` says of a name, its attributes and context whether the span is part of a rollout."""

    def __init__(self, inner: Sampler, belongs: Callable[[str, Attributes, Context | None], bool]) -> None:
        self.inner = inner
        self._belongs = belongs

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """The inner sampler's decision, or to record only."""
        result = self.inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if result.decision is Decision.DROP and self._belongs(name, attributes, parent_context):
            return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)
        return result

    def get_description(self) -> str:
        """The inner sampler's."""
        return self.inner.get_description()
