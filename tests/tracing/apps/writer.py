"""Rollouts without end, for processes that are killed: every span that ended is told at once.

Each line told is `trace_id span_id`, after `end()` returned; so it is acknowledged and must survive.
"""

import itertools
import os
import random
from pathlib import Path

from opentelemetry import trace

import art_otel

CALLS = 4
CONTENT = 20_000


def write_forever(folder: Path, tell: int, seed: int) -> None:
    """Rollouts of chat spans, small and large, one after another until something kills the process."""
    art_otel.configure(dir=folder, instrumentor="none")
    tracer = trace.get_tracer("writer")
    chance = random.Random(seed)
    for number in itertools.count():
        with art_otel.rollout(name=f"number {number}"):
            for _ in range(CALLS):
                text = "x" * chance.choice((10, 1_000, CONTENT))
                named = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": text}
                with tracer.start_as_current_span("chat m", attributes=named) as span:
                    pass
                context = span.get_span_context()
                os.write(tell, f"{context.trace_id:032x} {context.span_id:016x}\n".encode())
