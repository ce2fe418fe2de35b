"""Providers whose first processor rewrites spans, and whoever exports behind it."""

import json
from collections.abc import Callable
from pathlib import Path

from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder


class Rewriting(SpanProcessor):
    """What the rollout processor does with spans that ended: rewrite, then write a line."""

    def __init__(self, *rewrites: Callable[[ReadableSpan], object]) -> None:
        self.rewrites = rewrites
        self.lines: list[bytes] = []

    def on_end(self, span: ReadableSpan) -> None:
        for rewrite in self.rewrites:
            rewrite(span)
        self.lines.append(OtlpJsonEncoder().line(span))


class App:
    """An app whose spans go through `rewrites` and then to three exporters."""

    def __init__(self, folder: Path, *rewrites: Callable[[ReadableSpan], object], resource=None, **limits) -> None:
        self.ours = Rewriting(*rewrites)
        self.memory = InMemorySpanExporter()
        self.file = folder / "traces.jsonl"
        self.console = (folder / "console.txt").open("w+", encoding="utf-8")
        self.provider = TracerProvider(
            resource=Resource(resource or {"service.name": "app"}),
            span_limits=SpanLimits(**limits) if limits else None,
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(self.ours)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.provider.add_span_processor(BatchSpanProcessor(FileSpanExporter(str(self.file))))
        self.provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=self.console)))
        self.tracer = self.provider.get_tracer("app", "1")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """What the app's exporters were given."""
        return self.memory.get_finished_spans()

    def everything(self) -> str:
        """Every byte that left, as text, and with JSON's escapes undone once and twice."""
        self.provider.shutdown()
        self.console.seek(0)
        written = [
            self.file.read_text(encoding="utf-8"),
            self.console.read(),
            *(line.decode() for line in self.ours.lines),
        ]
        self.console.close()
        written += [span.to_json() for span in self.spans]
        return "\n".join([*written, *(text.encode().decode("unicode_escape", "replace") for text in written)])


class Torn(dict):
    """Attributes that cannot be read."""

    def copy(self):
        raise RuntimeError("torn")


def messages(*said: str) -> str:
    """A message list as instrumentors write it."""
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]} for text in said])
