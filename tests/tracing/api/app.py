"""An app with the public API, traced as `configure()` would, and calls shaped as an instrumentor records them."""

import asyncio
import json
from contextlib import contextmanager
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from art_otel.tracing.api.context import use_recorder
from art_otel.tracing.setup.providers import SystemIdGenerator
from tests.tracing.sdk.spans import Traced


class App(Traced):
    """Set up as the process's tracing while it is `in_use`."""

    def __init__(self, folder: Path, **options) -> None:
        provider = TracerProvider(shutdown_on_exit=False, id_generator=SystemIdGenerator())
        super().__init__(folder, provider=provider, **options)
        use_recorder(self.rollouts)

    def ask(self, question: str, answer: str = "a", response_id: str | None = None) -> str:
        """A call that is there at once."""
        with self.recorded(question, answer, response_id):
            return answer

    async def ask_later(self, question: str, answer: str = "a", response_id: str | None = None) -> str:
        """A call that gives way to other tasks while it runs."""
        with self.recorded(question, answer, response_id):
            await asyncio.sleep(0)
            return answer

    @contextmanager
    def recorded(self, question: str, answer: str, response_id: str | None):
        """The span of a call around its block."""
        asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        with self.instrumentor.start_as_current_span(
            "openai.chat", kind=trace.SpanKind.CLIENT, attributes=asked
        ) as span:
            span.set_attribute("gen_ai.input.messages", messages("user", question))
            yield span
            span.set_attribute("gen_ai.output.messages", messages("assistant", answer))
            if response_id is not None:
                span.set_attribute("gen_ai.response.id", response_id)

    def stored(self) -> dict[str, object]:
        """The trajectories of the spool by name, which are also those that were held live."""
        found, _ = self.convert()
        assert len({trajectory.name for trajectory in found}) == len(found)
        return {trajectory.name: trajectory for trajectory in found}


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}], "finish_reason": "stop"}])


def questions(trajectory) -> list[str]:
    """What was asked in each call."""
    return [call.input_messages[-1].content for call in trajectory.calls]
