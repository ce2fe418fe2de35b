"""One process of the live benchmark: the same calls through an instrumentor alone and with art-otel, in turn.

Prints a JSON line: CPU seconds of each call by case, in the order of the rounds.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from art_otel.live import RolloutBuffer
from art_otel.scrubbing import Scrubber
from art_otel.spool import SpoolWriter
from art_otel.tracing.openai import install, uninstall
from art_otel.tracing.sdk.processor import RecordingSpanProcessor, Rewrite
from art_otel.tracing.sdk.scrub_spans import SpanScrubber

BLOCK = 5
"""Calls of one case before the next has its turn."""
TOKENS = {"return_token_ids": True}


class Switch(SpanProcessor):
    """Passes spans to the case that has its turn."""

    def __init__(self) -> None:
        self.target: SpanProcessor | None = None

    def on_start(self, span: Span, parent_context=None) -> None:
        if self.target is not None:
            self.target.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        if self.target is not None:
            self.target.on_end(span)


def prompt(messages: int, size: int) -> list[dict]:
    """A conversation of `messages` messages and about `size` bytes."""
    text = ("Tell me more of the river and of what it carries to the sea. " * (size // messages // 60 + 1))[
        : size // messages
    ]
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at in range(messages - 1)] + [
        {"role": "user", "content": text}
    ]


def measure(
    rounds: int, cases: dict[str, tuple[SpanProcessor | None, bool]], call: Callable[[], object], switch: Switch
) -> dict:
    """CPU seconds of every call, the cases in turn."""
    tracer = trace.get_tracer("art_otel")
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        for name, (processor, captures) in cases.items():
            switch.target = processor
            (install if captures else uninstall)(**({"request_tokens": False} if captures else {}))
            around = {"art.rollout.id": f"{name}-{number}"}
            with tracer.start_as_current_span("rollout x", attributes=around):
                for _ in range(BLOCK):
                    begin = time.process_time()
                    call()
                    found[name].append(time.process_time() - begin)
    return found


def processor(folder: Path | None, rewrites: list[Rewrite]) -> RecordingSpanProcessor:
    """As configure() makes it, with and without a spool."""
    return RecordingSpanProcessor(
        spool=None if folder is None else SpoolWriter(folder), rollouts=RolloutBuffer(grace=0.0), rewrites=rewrites
    )


def main() -> None:
    """Instrument, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--messages", type=int, default=4)
    parser.add_argument("--size", type=int, default=1_200)
    parser.add_argument("--stream", action="store_true")
    given = parser.parse_args()
    switch, provider = Switch(), TracerProvider()
    provider.add_span_processor(switch)
    trace.set_tracer_provider(provider)
    for entry in entry_points(group="opentelemetry_instrumentor"):
        if entry.name == "openai":
            entry.load()().instrument(tracer_provider=provider)
    messages = prompt(given.messages, given.size)
    with tempfile.TemporaryDirectory() as folder, OpenAI() as client:

        def ask(**more: object) -> None:
            reply = client.chat.completions.create(model="m", messages=messages, stream=given.stream, **more)
            for _ in reply if given.stream else ():
                pass

        rewrites: list[Rewrite] = [SpanScrubber(Scrubber())]
        plain = {
            "alone": (None, False),
            "traced": (processor(None, rewrites), False),
            "spooled": (processor(Path(folder), rewrites), False),
            "spooled, captured": (processor(Path(folder), rewrites), True),
        }
        tokens = {
            "alone, with ids": (None, False),
            "spooled, ids captured": (processor(Path(folder), rewrites), True),
        }
        measure(3, plain, ask, switch)
        found = measure(given.rounds, plain, ask, switch)
        found |= measure(given.rounds, tokens, lambda: ask(logprobs=True, extra_body=TOKENS), switch)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
