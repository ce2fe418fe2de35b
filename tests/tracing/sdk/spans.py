"""A provider with our processor, and spans shaped as instrumentors make them."""

import json
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from art_otel.live import RolloutBuffer
from art_otel.spool import SpoolWriter
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.rollout_registry import ProcessRollout
from tests.conversions import convert_files

INSTRUMENTOR = "opentelemetry.instrumentation.openai.v1"


class Traced:
    """An app with tracing set up, and what its spool converts to."""

    def __init__(self, folder: Path, *, own: bool = True, provider: TracerProvider | None = None, **options) -> None:
        self.folder = folder
        self.provider = provider or TracerProvider(shutdown_on_exit=False)
        self.rollouts = options.pop("rollouts", None) or RolloutBuffer(grace=60)
        self.spool = options.pop("spool", SpoolWriter(folder / "spool"))
        owns = ProcessRollout(lambda: self.provider.get_tracer("art_otel"), self.rollouts, name="app.py")
        self.processor = RecordingSpanProcessor(
            spool=self.spool, rollouts=self.rollouts, process_rollout=owns if own else None, **options
        )
        self.provider.add_span_processor(self.processor)
        self.app = self.provider.get_tracer("app")
        self.instrumentor = self.provider.get_tracer(INSTRUMENTOR)

    def call(self, question: str, answer: str = "a") -> None:
        """What an instrumentor makes of a call."""
        with self.instrumentor.start_as_current_span("openai.chat", kind=trace.SpanKind.CLIENT) as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.request.model", "m")
            span.set_attribute("gen_ai.input.messages", _messages("user", question))
            span.set_attribute("gen_ai.output.messages", _messages("assistant", answer))

    def rollout(self, name: str, rollout_id: str):
        """A rollout's own span as the current one."""
        return self.app.start_as_current_span(f"rollout {name}", attributes={"art.rollout.id": rollout_id})

    def convert(self):
        """End everything and convert the spool; live and dump must agree."""
        self.processor.shutdown()
        trajectories, report = convert_files(self.folder / "out", self.folder / "spool")
        for trajectory in trajectories:
            assert self.rollouts.trajectory(trajectory.rollout_id) in (trajectory, None)
        return trajectories, report


def _messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
