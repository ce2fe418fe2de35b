"""The call: what all conventions together know about one inference span.

Invariant: parse_call never raises for any content of attributes, events or log records: what cannot be read is unknown
and named in `cut`.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall
from art_otel.conventions import genai, genai_messages, openinference, openllmetry, own
from art_otel.conventions.facts import CallFacts, merge_facts
from art_otel.conventions.failure import failure_of
from art_otel.conventions.reading import Reading
from art_otel.spans import LogRecord, Span

Convention: TypeAlias = Callable[[Span, Sequence[LogRecord], CallFacts], CallFacts | None]

CONVENTIONS: Final[dict[str, Convention]] = {
    own.CONVENTION: own.read,
    openinference.RAW: openinference.read_raw,
    genai.ATTRIBUTES: genai.read,
    genai.DETAILS: genai.read_details,
    genai_messages.CONVENTION: genai_messages.read,
    openinference.FLATTENED: openinference.read_flattened,
    openllmetry.CONVENTION: openllmetry.read,
}
"""Who may describe a call, the most trusted first. Each is told what the more trusted ones know already."""

_OPERATIONS: Final = {"completion": "text_completion"}


def parse_call(span: Span, logs: Sequence[LogRecord] = ()) -> InferenceCall:
    """The call that an inference span and its log records describe. `agent` and `step` are left to the span tree."""
    known = CallFacts()
    for read in CONVENTIONS.values():
        found = read(span, logs, known)
        known = known if found is None else merge_facts(known, found)
    known = msgspec.structs.replace(known, choices=_with_finish_reasons(known.choices, genai.finish_reasons(span)))
    error_type, error = failure_of(span)
    return InferenceCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        operation_name=_operation_name(span),
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        error_type=error_type,
        error=error,
        dropped_attributes=span.dropped_attributes_count + sum(log.dropped_attributes_count for log in logs),
        env_state=own.env_state_of(span),
        extra=own.extra_of(span),
        **msgspec.structs.asdict(known),
    )


def _operation_name(span: Span) -> str:
    name = Reading(span.attributes).text(genai.OPERATION_NAME, openllmetry.REQUEST_TYPE) or "chat"
    return _OPERATIONS.get(name, name)


def _with_finish_reasons(
    choices: tuple[Choice, ...] | None, reasons: Sequence[str | None]
) -> tuple[Choice, ...] | None:
    """The choices with the span's finish reasons where the messages had none."""
    if choices is None:
        return None
    return tuple(
        msgspec.structs.replace(choice, finish_reason=reasons[choice.index])
        if choice.finish_reason is None and choice.index < len(reasons)
        else choice
        for choice in choices
    )
