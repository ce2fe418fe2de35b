"""The recipe of docs/how-to/other-languages.md for a plain SDK: a lost span is known, and no grace is waited for."""

import importlib.util
from pathlib import Path

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

RECIPE = Path(__file__).parents[2] / "docs" / "python" / "span_counts.py"


class FromBaggage(SpanProcessor):
    """As opentelemetry-processor-baggage."""

    def on_start(self, span, parent_context=None) -> None:
        span.set_attributes({name: str(value) for name, value in baggage.get_all(parent_context).items()})


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_rollout_counts_its_spans(calls):
    spec = importlib.util.spec_from_file_location("span_counts", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    recorded = recipe.SpanCounts()
    for processor in (FromBaggage(), recorded, SimpleSpanProcessor(exporter)):
        provider.add_span_processor(processor)
    tracer = provider.get_tracer("agent")
    token = context.attach(baggage.set_baggage("art.rollout.id", "r1"))
    try:
        with tracer.start_as_current_span("rollout weather") as rollout:
            for _ in range(calls):
                with tracer.start_as_current_span("chat"):
                    pass
            recorded.put_on(rollout)
    finally:
        context.detach(token)
    counts = {
        span.name: (span.attributes or {}).get("art.rollout.spans.started") for span in exporter.get_finished_spans()
    }
    assert counts == {"rollout weather": calls, **({"chat": None} if calls else {})}
