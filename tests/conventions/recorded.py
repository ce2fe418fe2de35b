"""Recordings as spans, log records and calls, each read once.

`tests/recordings` holds every scenario in every mode; `recorded/` those of a later check, see its README.
"""

from functools import cache
from itertools import groupby
from pathlib import Path

from art_otel.calls import InferenceCall
from art_otel.conventions import merge_calls, parse_call, role_of
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import LogRecord, Span

RECORDINGS = Path(__file__).parent.parent / "recordings"
CHECKED = Path(__file__).parent / "recorded"
MODES = ("openinference", "traceloop", "genai_span", "genai_event", "otelv2_span", "otelv2_legacy")


def records(path: Path):
    for source in find_inputs([path]) if path.exists() else []:
        yield from read_file(source, FileStats())


@cache
def spans(mode: str, scenario: str) -> tuple[Span, ...]:
    """The spans in the order they started."""
    found = [one for one in records(RECORDINGS / mode / f"{scenario}.jsonl") if isinstance(one, Span)]
    return tuple(sorted(found, key=lambda one: one.start_ns))


@cache
def logs(mode: str, scenario: str) -> tuple[LogRecord, ...]:
    return tuple(one for one in records(RECORDINGS / mode / f"{scenario}.logs.jsonl") if isinstance(one, LogRecord))


@cache
def calls(mode: str, scenario: str) -> tuple[InferenceCall, ...]:
    """The calls of a recording in the order they started."""
    return tuple(
        parse_call(one, [log for log in logs(mode, scenario) if log.key == one.key])
        for one in spans(mode, scenario)
        if role_of(one) == "inference"
    )


@cache
def checked(name: str) -> tuple[InferenceCall, ...]:
    """The calls of a recording of the check in the order they started; nested recordings of one response as one."""
    found = [one for one in records(CHECKED / f"{name}.jsonl") if isinstance(one, Span)]
    said = [one for one in records(CHECKED / f"{name}.logs.binpb") if isinstance(one, LogRecord)]
    parsed = [
        parse_call(one, [log for log in said if log.key == one.key])
        for one in sorted(found, key=lambda one: one.start_ns)
        if role_of(one) == "inference"
    ]
    return tuple(
        merge_calls(list(same)) for _, same in groupby(parsed, key=lambda call: call.response_id or call.span_id)
    )
