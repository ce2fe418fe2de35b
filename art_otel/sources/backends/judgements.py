"""Judgements: what backends keep of a trace beside its spans: scores, and what is known of all of it.

One rule for every score, from whichever backend, and for lines of a rewards file: it is a reward under its own name. It
is the final reward only where that name is `reward`; nobody else's score is trained without being named.

    on a span of the same object     an event `gen_ai.evaluation.result` of that span
    in a file or row of its own      a span `reward NAME`, linked to the span, or naming the trace as its rollout

What is known of a trace (name, group, split, metadata) are attributes of its root, or stands on such a reward span.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from art_otel import attributes as names
from art_otel.sources.backends.store_spans import TranslatedSpan, plain
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import Refused
from art_otel.sources.json_documents import encode, is_object
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Value

EVENT: Final = "gen_ai.evaluation.result"
_SCALARS: Final = (str, int, float, bool)
_YES: Final = {"yes": 1.0, "no": 0.0}


class JudgedScore(NamedTuple):
    """A score as a backend keeps it; `time` as the backend writes it."""

    name: str
    value: float | None
    label: str | None = None
    explanation: str | None = None
    time: int | str | None = None


def score_of(
    name: Value, value: Value, *, label: Value = None, explanation: Value = None, time: Value = None
) -> JudgedScore | None:
    """The score that these values are; None without a number and a text. `yes` and `no` of judges are 1 and 0 too."""
    if isinstance(value, str):
        label, value = label or value, _YES.get(value.strip().lower())
    number = float(value) if isinstance(value, int | float) else None
    text = label if isinstance(label, str) and label else None
    if not isinstance(name, str) or not name or (number is None and text is None):
        return None
    reason = explanation if isinstance(explanation, str) and explanation else None
    return JudgedScore(name, number, text, reason, time if isinstance(time, int | str) and time != "" else None)


def score_attributes(score: JudgedScore) -> dict[str, Value]:
    """The score as the attributes of an evaluation's result."""
    fields: dict[str, Value] = {
        "gen_ai.evaluation.name": score.name,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": score.label,
        "gen_ai.evaluation.explanation": score.explanation,
    }
    return {name: value for name, value in fields.items() if value is not None}


def score_events(scores: Iterable[JudgedScore], default_ns: int | None) -> list[otlp.OtlpEvent]:
    """The scores as events of the span that they judge; one without a time was given when the span ended."""
    return [
        otlp.OtlpEvent(
            name=EVENT,
            time_unix_nano=default_ns if (time := as_ns(score.time, "time")) is None else time,
            attributes=plain(score_attributes(score)),
        )
        for score in scores
    ]


def reward_span(
    score: JudgedScore | None,
    *,
    trace_id: str | None,
    span_id: str | None = None,
    facts: Mapping[str, Value] | None = None,
) -> TranslatedSpan:
    """The span that gives a score, or facts, to what stands elsewhere: a span (of a trace), or the trace's rollout.

    The id is made of what it says, so that the same row is the same span however often it is delivered.
    """
    attributes: dict[str, Value] = {} if score is None else score_attributes(score)
    if trace_id is None:
        attributes[names.REWARD_SPAN_ID] = span_id
    elif span_id is None:
        attributes[names.ROLLOUT_ID] = trace_id
    if facts:
        attributes[names.ROLLOUT_FACTS] = encode(dict(facts))
    time_ns = 1 if score is None or score.time is None else as_ns(score.time, "time")
    digest = blake2b(msgspec.json.encode([attributes, trace_id, span_id, time_ns]), digest_size=24).hexdigest()
    link = [] if span_id is None or trace_id is None else [otlp.OtlpLink(trace_id=trace_id, span_id=span_id)]
    return TranslatedSpan(
        otlp.OtlpSpan(
            trace_id=digest[:32],
            span_id=digest[32:],
            name=f"{names.REWARD_SPAN_PREFIX}{'' if score is None else score.name}",
            start_time_unix_nano=time_ns,
            end_time_unix_nano=time_ns,
            attributes=plain(attributes | ({} if score is None else {names.REWARD_EVALUATION: True})),
            links=link,
        )
    )


def trace_facts(
    *,
    name: Value = None,
    group_id: Value = None,
    split: Value = None,
    metadata: Mapping[str, Value] | None = None,
    others: Mapping[str, Value] | None = None,
) -> dict[str, Value]:
    """What is known of a whole trace, as attributes of its rollout; what is unknown is none.

    `others` are fields of the backend (`tags`, `user_id`), which a name of the app's own `metadata` goes before.
    """
    facts: dict[str, Value] = {
        key: value
        for key, value in ((names.ROLLOUT_NAME, name), (names.GROUP_ID, group_id), (names.SPLIT, split))
        if value not in (None, "")
    }
    for key, value in {**(others or {}), **(metadata or {})}.items():
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, _SCALARS):
            facts[f"{names.METADATA_PREFIX}{key}"] = value
        else:
            facts[f"{names.METADATA_JSON_PREFIX}{key}"] = encode(value)
    return facts


def metadata_of(value: Value, *hidden: str) -> dict[str, Value]:
    """Metadata that a backend keeps as an object or its JSON text, without the fields that are the backend's own."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return {}
    return {name: item for name, item in value.items() if name not in hidden} if is_object(value) else {}


def no_score(where: str) -> Refused:
    """Why a row that should be a score is none."""
    return Refused("bad reward", where, "has neither a value nor a label")
