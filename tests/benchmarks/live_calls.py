"""One process of the live benchmark: the same calls raw, through an instrumentor, and with art-otel, in turn.

Prints a JSON line: CPU seconds of each call by case, in the order of the rounds.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from art_otel.live import RolloutBuffer
from art_otel.scrubbing import Scrubber
from art_otel.spool import SpoolWriter
from art_otel.tracing.openai import install, uninstall
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.span_lines import SpanScrubber

WARM = 5
"""Rounds before the first that counts."""
TOKENS: dict[str, Any] = {"logprobs": True, "extra_body": {"return_token_ids": True}}


class Case(NamedTuple):
    """What is around a call: an instrumentor, spans that are spooled, answers that are captured, ids asked for."""

    instrumented: bool = False
    spooled: bool = False
    captured: bool = False
    ids: bool = False


CASES = {
    "raw": Case(),
    "alone": Case(instrumented=True),
    "spooled": Case(instrumented=True, spooled=True),
    "captured": Case(instrumented=True, spooled=True, captured=True),
    "ours": Case(spooled=True, captured=True),
    "raw, ids": Case(ids=True),
    "alone, ids": Case(instrumented=True, ids=True),
    "captured, ids": Case(instrumented=True, spooled=True, captured=True, ids=True),
    "ours, ids": Case(spooled=True, captured=True, ids=True),
}


class Switch(SpanProcessor):
    """Passes spans on while it is on."""

    def __init__(self, target: SpanProcessor) -> None:
        self.target = target
        self.is_on = False

    def on_start(self, span: Span, parent_context=None) -> None:
        if self.is_on:
            self.target.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        if self.is_on:
            self.target.on_end(span)


class Instrumentors:
    """The instrumentors of openai's client in this environment: what they put on its classes, put there or not.

    They are started once: OpenLLMetry's makes each call slower whenever it is started again.
    """

    def __init__(self, provider: TracerProvider) -> None:
        before = _on_classes()
        for entry in entry_points(group="opentelemetry_instrumentor"):
            if entry.name == "openai":
                entry.load()().instrument(tracer_provider=provider)
        after = _on_classes()
        self._changed = [(*place, before[place], after[place]) for place in before if before[place] is not after[place]]
        self._are_on = True

    def turn(self, are_on: bool) -> None:
        if are_on != self._are_on:
            for owner, name, before, after in self._changed:
                setattr(owner, name, after if are_on else before)
        self._are_on = are_on


def _on_classes() -> dict[tuple[type, str], Any]:
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "openai"]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    of_openai = [each for each in classes if each.__module__.startswith("openai")]
    return {(owner, name): value for owner in of_openai for name, value in vars(owner).items() if callable(value)}


def prompt(messages: int, size: int) -> list[dict]:
    """A conversation of `messages` messages and about `size` bytes."""
    text = ("Tell me more of the river and of what it carries to the sea. " * (size // messages // 60 + 1))[
        : size // messages
    ]
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at in range(messages - 1)] + [
        {"role": "user", "content": text}
    ]


def measure(rounds: int, ask: Callable[..., None], switch: Switch, instrumentors: Instrumentors) -> dict:
    """CPU seconds of every call, the cases in turn. The call before it finds the classes changed, and is not timed."""
    tracer = trace.get_tracer("art_otel")
    scrubber = Scrubber()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(-WARM, rounds):
        for name, case in CASES.items():
            uninstall()
            instrumentors.turn(case.instrumented)
            if case.captured:
                install(scrubber=scrubber)
            switch.is_on = case.spooled
            more = TOKENS if case.ids else {}
            with tracer.start_as_current_span("rollout x", attributes={"art.rollout.id": f"{name}{number}"}):
                ask(**more)
                begin = time.process_time()
                ask(**more)
                took = time.process_time() - begin
            if number >= 0:
                found[name].append(took)
    return found


def main() -> None:
    """Instrument, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--messages", type=int, default=4)
    parser.add_argument("--size", type=int, default=1_200)
    parser.add_argument("--stream", action="store_true")
    given = parser.parse_args()
    messages = prompt(given.messages, given.size)
    with tempfile.TemporaryDirectory() as folder, OpenAI() as client:
        switch = Switch(
            RecordingSpanProcessor(
                spool=SpoolWriter(Path(folder)),
                rollouts=RolloutBuffer(grace=0.0),
                rewrites=[SpanScrubber(Scrubber())],
            )
        )
        provider = TracerProvider()
        provider.add_span_processor(switch)
        trace.set_tracer_provider(provider)

        def ask(**more: Any) -> None:
            reply = client.chat.completions.create(model="m", messages=messages, stream=given.stream, **more)
            for _ in reply if given.stream else ():
                pass

        print(json.dumps(measure(given.rounds, ask, switch, Instrumentors(provider))))


if __name__ == "__main__":
    main()
