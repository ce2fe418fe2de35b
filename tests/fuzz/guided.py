"""Guided: coverage-guided fuzzing of the pure parsing functions with atheris, which needs an environment that has it.

    python -m tests.fuzz.guided {call,tokens,readers} [libFuzzer options] [corpus folder]

Invariant: no input raises anything but a ParseError where a function says so. libFuzzer keeps the input that does.
"""

import io
import sys
from collections.abc import Callable
from contextlib import suppress

import atheris

with atheris.instrument_imports(include=["art_otel"], enable_loader_override=False):
    from art_otel.conventions import parse_call, rewards_of, role_of
    from art_otel.conventions.bodies.tokens import decode_ids, decode_logprobs, decode_prompt_ids
    from art_otel.errors import ParseError
    from art_otel.sources import FileStats, Limits, all_formats
    from art_otel.sources.format import Reading
    from art_otel.spans import Event, LogRecord, Quarantined, Span

    FORMATS = tuple(all_formats())

from tests.fuzz.names import EVENT_NAMES, NAMES

LIMITS = Limits(max_message_bytes=1 << 20, max_decompressed_bytes=1 << 24)


def call(data: bytes) -> None:
    """A span of any known attributes."""
    given = atheris.FuzzedDataProvider(data)
    span = Span(
        trace_id="1" * 32,
        span_id="1" * 16,
        name=given.PickValueInList(["chat m", "rollout x", "reward y", "openai.chat", "work"]),
        kind="client",
        start_ns=1,
        end_ns=2,
        events=(Event(name=given.PickValueInList(EVENT_NAMES), time_ns=1, attributes=_attributes(given, 2)),),
        attributes=_attributes(given, 6),
    )
    role_of(span)
    rewards_of(span)
    parse_call(span, ())


def _attributes(given: atheris.FuzzedDataProvider, most: int) -> dict:
    return {given.PickValueInList(NAMES): _value(given) for _ in range(given.ConsumeIntInRange(0, most))}


def _value(given: atheris.FuzzedDataProvider) -> object:
    match given.ConsumeIntInRange(0, 9):
        case 0:
            return given.ConsumeInt(8)
        case 1:
            return given.ConsumeRegularFloat()
        case 2:
            return [given.ConsumeUnicodeNoSurrogates(8)]
        case 3:
            return given.ConsumeBytes(16)
        case _:
            return given.ConsumeUnicodeNoSurrogates(given.ConsumeIntInRange(0, 200))


def tokens(data: bytes) -> None:
    """Any text as token ids and logprobs."""
    text = data.decode(errors="replace")
    for decode in (decode_ids, decode_prompt_ids, decode_logprobs):
        with suppress(ParseError):
            decode(text)


def readers(data: bytes) -> None:
    """Any bytes in any format: records come out, each a kind of its own."""
    known = FORMATS[data[0] % len(FORMATS)] if data else FORMATS[0]
    known.detects(data[1:])
    reading = Reading(path="in", limits=LIMITS, stats=FileStats())
    for record in known.reads(io.BufferedReader(io.BytesIO(data[1:])), reading):
        assert isinstance(record, Span | LogRecord | Quarantined)


TARGETS: dict[str, Callable[[bytes], None]] = {"call": call, "tokens": tokens, "readers": readers}

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
