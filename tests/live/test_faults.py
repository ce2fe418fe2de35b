"""Faults of our own: 10,000 raised in every part of the processor, none in the app, each counted, none hidden."""

import logging
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from art_otel import attributes
from art_otel.live import RolloutBuffer
from art_otel.spool import SpoolWriter
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.rollout_registry import ProcessRollout, record_span_counts
from tests.conversions import convert_files

FAULTS = 10_000
EXCEPTIONS = (ValueError, KeyError, OSError, RecursionError, MemoryError, UnicodeError, AssertionError, StopIteration)


CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"a"}]}]',
    "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"b"}],"finish_reason":"stop"}]',
}
LAST_RESORT = {"RolloutBuffer.missed", "Membership.of"}
"""What remembers that a fault lost something; a fault in there, on top of the first, cannot be remembered."""


class Faults:
    """Raises at random, and counts what it raised by the name of the method."""

    def __init__(self, seed: int, rate: float) -> None:
        self.raised: Counter[str] = Counter()
        self.rate = rate
        self._chance = random.Random(seed)

    def maybe(self, where: str) -> None:
        if self._chance.random() < self.rate:
            self.raised[where] += 1
            raise self._chance.choice(EXCEPTIONS)(f"injected into {where}")


class Faulty:
    """A part of the processor whose methods may raise before they do anything."""

    def __init__(self, part: object, faults: Faults) -> None:
        self._part = part
        self._faults = faults

    def __getattr__(self, name: str) -> object:
        found = getattr(self._part, name)
        if not callable(found) or name in {"counts", "start_anew"}:
            return found

        def call(*args: object, **options: object) -> object:
            self._faults.maybe(f"{type(self._part).__name__}.{name}")
            return found(*args, **options)

        return call

    def __call__(self, span: object) -> object:
        self._faults.maybe("rewrite")
        return span

    def __len__(self) -> int:
        return len(self._part)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Faults are logged, at 1, 2, 4, 8, …; here they need not be seen."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def faulty_processor(folder, faults: Faults, provider: TracerProvider) -> RecordingSpanProcessor:
    """Every part of it may raise."""
    rollouts = RolloutBuffer(max_open=1 << 20, grace=1 << 20)
    processor = RecordingSpanProcessor(
        spool=Faulty(SpoolWriter(folder), faults),
        rollouts=Faulty(rollouts, faults),
        rewrites=[Faulty(object(), faults)],
        rollout_spans=["job *"],
        process_rollout=Faulty(ProcessRollout(lambda: provider.get_tracer("own"), rollouts), faults),
    )
    processor.registry = Faulty(processor.registry, faults)
    processor._lines = Faulty(processor._lines, faults)
    return processor


def one_rollout(tracer, processor: RecordingSpanProcessor, number: int) -> str:
    """A rollout of four spans, as rollout() makes them; its id."""
    rollout_id = f"{number:032x}"
    named = {attributes.ROLLOUT_ID: rollout_id, attributes.ROLLOUT_NAME: "x"}
    with tracer.start_as_current_span("rollout x", attributes=named) as root:
        for call in range(3):
            with tracer.start_as_current_span("chat m", attributes={**CALL, "call": call}):
                pass
        record_span_counts(root, processor.rollouts.counts(rollout_id))
    return rollout_id


def test_10_000_faults(tmp_path):
    faults = Faults(seed=1, rate=0.05)
    provider, seen = TracerProvider(), InMemorySpanExporter()
    processor = faulty_processor(tmp_path / "spool", faults, provider)
    provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(seen))
    tracer = provider.get_tracer("app")
    made = 0
    while sum(faults.raised.values()) < FAULTS:
        one_rollout(tracer, processor, made)
        with (
            tracer.start_as_current_span("job of another kind"),
            tracer.start_as_current_span("chat m", attributes=CALL),
        ):
            pass
        with tracer.start_as_current_span("chat alone", attributes=CALL):
            pass
        provider.force_flush()
        made += 1
    assert processor.faults == sum(faults.raised.values())
    assert len(faults.raised) >= 10, faults.raised
    faults.rate = 0
    assert not provider.force_flush(), "what was lost cannot be flushed"
    exported = [span for span in seen.get_finished_spans() if not span.name.startswith("rollout test")]
    assert (
        len([span for span in exported if not span.name.startswith("rollout ") or span.name == "rollout x"]) == 7 * made
    )
    after = one_rollout(tracer, processor, made)
    provider.shutdown()
    twice = sum(count for where, count in faults.raised.items() if where in LAST_RESORT)
    check_nothing_is_hidden(tmp_path, made, after, twice)


def check_nothing_is_hidden(folder, made: int, after: str, twice: int) -> None:
    """What is complete has all its calls, but for faults of the last resort; what came after the faults is complete."""
    trajectories, report = convert_files(folder / "dataset", folder / "spool")
    assert not report.spans.quarantined
    by_id = {found.rollout_id: found for found in trajectories}
    assert by_id[after].complete, by_id[after].incomplete_reasons
    named = [by_id[rollout_id] for number in range(made) if (rollout_id := f"{number:032x}") in by_id]
    hidden = [found for found in named if found.complete and sum(call.end_ns is not None for call in found.calls) != 3]
    assert len(hidden) <= twice
    assert sum(found.complete for found in named) > made // 10
