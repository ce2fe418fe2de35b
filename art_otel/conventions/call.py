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
from art_otel.conventions.finish import BROKEN
from art_otel.conventions.operations import TEXT_COMPLETION, operation_of_name
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


def parse_call(span: Span, logs: Sequence[LogRecord] = ()) -> InferenceCall:
    """The call that an inference span and its log records describe. `agent` and `step` are left to the span tree."""
    known = CallFacts()
    for read in CONVENTIONS.values():
        found = read(span, logs, known)
        known = known if found is None else merge_facts(known, found)
    known = _with_prompts_apart(_with_operation(known, span.name))
    choices = _with_finish_reasons(known.choices, genai.finish_reasons(span))
    known = msgspec.structs.replace(known, choices=None if choices is None else tuple(map(_without_break, choices)))
    error_type, error = failure_of(span)
    if error_type is None and error is None and _broke(span, choices):
        error_type = BROKEN
    return InferenceCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        error_type=error_type,
        error=error,
        dropped_attributes=span.dropped_attributes_count + sum(log.dropped_attributes_count for log in logs),
        env_state=own.env_state_of(span),
        extra=own.extra_of(span),
        **msgspec.structs.asdict(known),
    )


def _with_operation(facts: CallFacts, span_name: str) -> CallFacts:
    """The facts with the operation that the span's name tells where nothing else does."""
    name = facts.operation_name or operation_of_name(span_name) or "chat"
    return msgspec.structs.replace(facts, operation_name=name)


def _with_prompts_apart(facts: CallFacts) -> CallFacts:
    """Several prompts of one text completion as a parameter, because none of them stands before all choices.

    Recorders write them like the messages of one prompt, each as the user's.
    """
    messages = facts.input_messages or ()
    if facts.operation_name != TEXT_COMPLETION or len(messages) < 2 or any(one.role != "user" for one in messages):
        return facts
    prompts = {"prompt": [message.content for message in messages]}
    return msgspec.structs.replace(facts, input_messages=None, parameters={**prompts, **facts.parameters})


def _broke(span: Span, choices: Sequence[Choice] | None) -> bool:
    """Whether a choice ended in an error, which some instrumentors say in place of its finish reason."""
    return BROKEN in (*genai.finish_reasons(span), *(choice.finish_reason for choice in choices or ()))


def _without_break(choice: Choice) -> Choice:
    return msgspec.structs.replace(choice, finish_reason=None) if choice.finish_reason == BROKEN else choice


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
