"""Rewards in a file of their own: lines `{"rollout_id", "name", "value"}`, given after a session or an evaluation.

A line may also have `label`, `explanation`, `attempt`, `response_id` (of the call that it judges) and `time`; and what
is to be known of the rollout: `group_id`, `split` and `metadata`, with a value or without one. Each is the span of a
reward that was given elsewhere; which of them is the final reward, `judgements` says for all backends.

Invariant: lines are ordered by their time. A line without one was given after everything that was recorded, so it is
behind whatever has a time. Such lines are ordered by the names of their files and then by line, whichever process
reads them in which round: of two rewards of one name the later line counts, and a line of `rewards-tuesday-2.jsonl`
corrects one of `rewards-tuesday.jsonl`. No name says for sure which file is later, so the report counts the lines
without a time.
"""

import io
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.backends.judgements import trace_facts
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import Reading, Record, Refused, SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, object_of, read_documents
from art_otel.spans import Span, Value

_SUFFIXES: Final = re.compile(r"(\.(jsonl?|ndjson|gz|zstd?))+$")
_NUMBER: Final = re.compile(r"\d+")
_DIGITS: Final = 20
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UNKNOWN_NS: Final = 1
"""The time of a reward whose line has none. `REWARD_ORDER` puts it behind all others."""


class _Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A reward."""

    rollout_id: str
    value: float | bool | None = None
    name: str = "reward"
    label: str | None = None
    explanation: str | None = None
    attempt: int | None = None
    response_id: str | None = None
    group_id: str | int | None = None
    split: str | None = None
    metadata: dict[str, Value] | None = None
    time: int | float | str | None = None


def _detects(line: dict[str, Value]) -> bool:
    fields = set(_Row.__struct_fields__)
    return "rollout_id" in line and (line.keys() <= fields or "value" in line)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
        try:
            row = converted(object_of(document), _Row, strict=True)
            span = _span(row, reading.path, document.line)
            reading.stats.without_time += names.REWARD_ORDER in span.attributes
            yield span
        except Refused as problem:
            yield problem.quarantine(f"{reading.path}:{document.line}")


def _order(path: str, line: int) -> str:
    """A text that sorts as the names of files do for people: 2 is before 10, and `a.jsonl` before `a-2.jsonl`."""
    name = _SUFFIXES.sub("", path).replace("/", " ")
    return _NUMBER.sub(lambda number: number[0].zfill(_DIGITS), f"{name} {line}")


def _time(time: float | str | None) -> int | None:
    """The time of a line; a day without a time of day is its end, for a reward is given after what it judges."""
    if isinstance(time, str) and _DATE.fullmatch(time.strip()):
        time = f"{time.strip()}T23:59:59.999999999"
    return as_ns(time, "time")


def _span(row: _Row, path: str, line: int) -> Span:
    """Make the span of a reward. Lines that say the same are one span, with the order of the last of them."""
    time_ns = _time(row.time)
    group_id = None if row.group_id is None else str(row.group_id)
    facts = trace_facts(group_id=group_id, split=row.split, metadata=row.metadata)
    is_reward = row.value is not None or row.label is not None
    if not is_reward and not facts:
        raise Refused("bad reward", "value", "has neither a value nor a label, nor a group_id, split or metadata")
    attributes: dict[str, Value] = {
        names.ROLLOUT_ID: row.rollout_id,
        names.ROLLOUT_ATTEMPT: row.attempt,
        "gen_ai.evaluation.name": row.name if is_reward else None,
        "gen_ai.evaluation.score.value": row.value,
        "gen_ai.evaluation.score.label": row.label,
        "gen_ai.evaluation.explanation": row.explanation,
        "gen_ai.response.id": row.response_id,
        names.REWARD_EVALUATION: True,
        names.ROLLOUT_FACTS: encode(facts) if facts else None,
    }
    present = {name: value for name, value in attributes.items() if value is not None}
    digest = blake2b(msgspec.json.encode([present, time_ns]), digest_size=24).hexdigest()
    start_ns = time_ns
    if start_ns is None:
        start_ns = _UNKNOWN_NS
        present[names.REWARD_ORDER] = _order(path, line)
    name = f"{names.REWARD_SPAN_PREFIX}{row.name}"
    return Span(
        trace_id=digest[:32], span_id=digest[32:], name=name, start_ns=start_ns, end_ns=start_ns, attributes=present
    )


FORMAT: Final = SourceFormat(name="rewards", detects=head_detector(_detects), reads=_reads)
