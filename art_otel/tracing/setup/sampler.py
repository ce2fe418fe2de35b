"""RolloutSampler: every span is recorded here, whatever the app samples; what is exported stays as it was.

Invariant: what the app's sampler lets through stays exactly as it decided. What it drops is recorded without the
sampled flag, so exporters leave it out and other services are told the same as before. All of it, because a call makes
a rollout of the spans that began before it.
"""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes


class RolloutSampler(Sampler):
    """`inner` decides what is exported."""

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner

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
        if result.decision is Decision.DROP:
            return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)
        return result

    def get_description(self) -> str:
        """The inner sampler's."""
        return self.inner.get_description()
