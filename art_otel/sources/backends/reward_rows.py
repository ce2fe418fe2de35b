"""Rewards in a file of their own: lines `{"rollout_id", "name", "value"}`, given after a session or an evaluation.

A line may also have `label`, `explanation`, `attempt`, `response_id` (of the call that it judges) and `time`. Each is
the span of a reward that was given elsewhere. Invariant: lines are ordered by their time, those without one are before
those that have one, in their order, so that of two rewards of one name the later line counts.
"""

import io
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.backends.times import as_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.objects import read_objects
from art_otel.sources.json_text.values import head_detector
from art_otel.sources.refusals import Refused, converted
from art_otel.spans import Span, Value


class _Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A reward."""

    rollout_id: str
    value: float | bool | None = None
    name: str = "reward"
    label: str | None = None
    explanation: str | None = None
    attempt: int | None = None
    response_id: str | None = None
    time: int | str | None = None


def _detects(line: dict[str, Value]) -> bool:
    return "rollout_id" in line and line.keys() <= set(_Row.__struct_fields__)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    for line, value in read_objects(stream, reading.limits.max_message_bytes):
        try:
            if isinstance(value, Refused):
                raise value
            yield _span(converted(value, _Row, strict=True), line)
        except Refused as problem:
            yield problem.quarantine(f"{reading.path}:{line}")


def _span(row: _Row, line: int) -> Span:
    time_ns = as_ns(row.time, "time")
    if row.value is None and row.label is None:
        raise Refused("bad reward", "value", "has neither a value nor a label")
    attributes: dict[str, Value] = {
        names.ROLLOUT_ID: row.rollout_id,
        names.ROLLOUT_ATTEMPT: row.attempt,
        "gen_ai.evaluation.name": row.name,
        "gen_ai.evaluation.score.value": row.value,
        "gen_ai.evaluation.score.label": row.label,
        "gen_ai.evaluation.explanation": row.explanation,
        "gen_ai.response.id": row.response_id,
    }
    present = {name: value for name, value in attributes.items() if value is not None}
    digest = blake2b(msgspec.json.encode([present, time_ns]), digest_size=24).hexdigest()
    start_ns = line if time_ns is None else time_ns
    name = f"{names.REWARD_SPAN_PREFIX}{row.name}"
    return Span(
        trace_id=digest[:32], span_id=digest[32:], name=name, start_ns=start_ns, end_ns=start_ns, attributes=present
    )


FORMAT: Final = Format(name="rewards", detects=head_detector(_detects), reads=_reads)
