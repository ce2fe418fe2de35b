"""The call: what all conventions together know about one inference span.

Invariant: parse_call never raises for any content of attributes, events or log records: what cannot be read is unknown
and named in `cut`.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames, names_of
from art_otel.conventions.bodies.failure import failure_of
from art_otel.conventions.bodies.finish import BROKEN, completed_reason, is_response
from art_otel.conventions.bodies.operations import TEXT_COMPLETION, operation_of_name
from art_otel.conventions.dialects import agentlightning, art, genai, genai_events, litellm, openinference, openllmetry
from art_otel.conventions.facts import NOTHING, CallFacts, merge_facts
from art_otel.conventions.recording import Recording
from art_otel.spans import LogRecord, Span

Read: TypeAlias = Callable[[Recording, CallFacts], CallFacts | None]
Matches: TypeAlias = Callable[[AttributeNames], bool]


class Convention(msgspec.Struct, frozen=True):
    """How a convention is read, and which spans it is read of: by the names of their attributes.

    One without `matches` reads events and log records only.
    """

    read: Read
    matches: Matches | None = None


CONVENTIONS: Final[dict[str, Convention]] = {
    art.CONVENTION: Convention(art.read, art.matches),
    agentlightning.CONVENTION: Convention(agentlightning.read, agentlightning.matches),
    openinference.RAW: Convention(openinference.read_raw, openinference.may_have_bodies),
    litellm.CONVENTION: Convention(litellm.read, litellm.matches),
    genai.ATTRIBUTES: Convention(genai.read, genai.matches),
    genai.DETAILS: Convention(genai.read_details),
    genai_events.CONVENTION: Convention(genai_events.read),
    openinference.FLATTENED: Convention(openinference.read_flattened, openinference.may_be_flattened),
    openllmetry.CONVENTION: Convention(openllmetry.read, openllmetry.matches),
}
"""Who may describe a call, the most trusted first. Each is told what the more trusted ones know already."""


def parse_call(span: Span, logs: Sequence[LogRecord] = ()) -> InferenceCall:
    """The call that an inference span and its log records describe. `agent` and `step` are left to the span tree."""
    names = names_of(span.attributes)
    recorded = Recording(span, logs, names)
    known = NOTHING
    for read in names.told(_readers_with_events if span.events or logs else _readers):
        found = read(recorded, known)
        if found is not None:
            known = found if known is NOTHING else merge_facts(known, found)
    operation_name = known.operation_name or operation_of_name(span.name) or "chat"
    if operation_name == TEXT_COMPLETION:
        known = _without_echo(_with_prompts_apart(known))
    reasons = genai.finish_reasons(span)
    error_type, error = failure_of(span)
    broke = _broke(known.choices, reasons)
    if broke and error_type is None and error is None:
        error_type = BROKEN
    choices = _finished(known.choices, reasons) if known.choices and (reasons or broke) else known.choices
    if choices and is_response(known.response_id):
        choices = tuple(map(_completed, choices))
    call = InferenceCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        operation_name=operation_name,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        response_id=known.response_id,
        provider=known.provider,
        request_model=known.request_model,
        response_model=known.response_model,
        parameters=known.parameters,
        input_messages=known.input_messages,
        choices=choices,
        prompt_token_ids=known.prompt_token_ids,
        conventions=known.conventions,
    )
    dropped = sum([log.dropped_attributes_count for log in logs]) if logs else 0
    says_more = names.told(art.says_more)
    return msgspec.structs.replace(  # in two steps: more than 15 arguments at once take four times as long
        call,
        previous_response_id=known.previous_response_id,
        tools=known.tools,
        usage=known.usage,
        policy_version=known.policy_version,
        error_type=error_type,
        error=error,
        stream=known.stream,
        dropped_attributes=span.dropped_attributes_count + dropped,
        cut=known.cut,
        scrubbed=says_more and art.is_scrubbed(recorded.reader()),
        env_state=art.read_env_state(recorded.reader()) if says_more else {},
        extra=art.read_extra(recorded.reader()) if says_more else {},
    )


def _readers(names: AttributeNames) -> tuple[Read, ...]:
    """The conventions that may tell something where there are no events."""
    return tuple(one.read for one in CONVENTIONS.values() if one.matches is not None and one.matches(names))


def _readers_with_events(names: AttributeNames) -> tuple[Read, ...]:
    return tuple(one.read for one in CONVENTIONS.values() if one.matches is None or one.matches(names))


def _with_prompts_apart(facts: CallFacts) -> CallFacts:
    """Several prompts of one text completion as a parameter, because none of them stands before all choices.

    Recorders write them like the messages of one prompt, each as the user's.
    """
    messages = facts.input_messages or ()
    if len(messages) < 2 or any(one.role != "user" for one in messages):
        return facts
    prompts = {"prompt": [message.content for message in messages]}
    return msgspec.structs.replace(facts, input_messages=None, parameters={**prompts, **facts.parameters})


def _without_echo(facts: CallFacts) -> CallFacts:
    """The facts without choices where the prompt was to be echoed: each may begin with it, as text and as tokens."""
    return msgspec.structs.replace(facts, choices=None) if values.flag(facts.parameters.get("echo")) else facts


def _broke(choices: Sequence[Choice] | None, reasons: Sequence[str | None]) -> bool:
    """Whether a choice ended in an error, which some instrumentors say in place of its finish reason."""
    if BROKEN in reasons:
        return True
    for choice in choices or ():  # noqa: SIM110 # any() costs twice as much, and this is asked of every call
        if choice.finish_reason == BROKEN:
            return True
    return False


def _finished(choices: Sequence[Choice], reasons: Sequence[str | None]) -> tuple[Choice, ...]:
    """The choices with the span's finish reasons where the messages had none; an error is no reason to finish."""
    found = [_reason(choice, reasons) for choice in choices]
    kept = [None if reason == BROKEN else reason for reason in found]
    return tuple(
        choice if reason == choice.finish_reason else msgspec.structs.replace(choice, finish_reason=reason)
        for choice, reason in zip(choices, kept, strict=True)
    )


def _completed(choice: Choice) -> Choice:
    """A choice of a response, which has a status that some recorders call `stop` whatever was said."""
    if choice.finish_reason != "stop" or not choice.message.tool_calls:
        return choice
    return msgspec.structs.replace(choice, finish_reason=completed_reason(tool_calls=True))


def _reason(choice: Choice, reasons: Sequence[str | None]) -> str | None:
    if choice.finish_reason is None and choice.index < len(reasons):
        return reasons[choice.index]
    return choice.finish_reason
