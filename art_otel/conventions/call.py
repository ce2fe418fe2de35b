"""parse_call: one inference span and its log records -> InferenceCall.

Invariant: it never raises for any content of attributes, events or log records: what cannot be read is unknown, and a
gap says which attribute holds it.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Known
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import names_of
from art_otel.conventions.bodies.failure import failure_of
from art_otel.conventions.bodies.finish import ERROR_FINISH_REASON, completed_reason, names_no_tool_calls
from art_otel.conventions.bodies.operations import TEXT_COMPLETION, operation_of_name
from art_otel.conventions.dialects import all_dialects, art, attribute_dialects, genai
from art_otel.conventions.facts import NO_FACTS, CallFacts, merge_facts
from art_otel.conventions.gaps import find_gaps
from art_otel.conventions.recorders.lossy import is_error_unknown
from art_otel.conventions.recording import Recording
from art_otel.spans import LogRecord, Span


def parse_call(span: Span, logs: Sequence[LogRecord] = ()) -> InferenceCall:
    """Parse the call that an inference span and its log records describe; the span tree sets `agent` and `step`."""
    recording = Recording(span, logs, names_of(span.attributes))
    facts = _read_facts(recording)
    operation_name = facts.operation_name or operation_of_name(span.name) or "chat"
    if operation_name == TEXT_COMPLETION:
        facts = _without_echo(_without_batch_prompts(facts))
    reasons = genai.finish_reasons(recording)
    error_type, error = failure_of(span)
    if is_error_unknown(span.scope.name, facts.response_id) and span.status != "error":
        reasons = ()
        facts = _without_error_reasons(facts)
    ended_in_error = _ended_in_error(facts.choices, reasons)
    if ended_in_error and error_type is None and error is None:
        error_type = ERROR_FINISH_REASON
    choices = facts.choices
    if choices and (reasons or ended_in_error):
        choices = _with_finish_reasons(choices, reasons)
    if (
        choices
        and _stopped_with_tool_calls(choices)
        and names_no_tool_calls(facts.provider, operation_name, facts.response_id)
    ):
        choices = tuple(map(_with_tool_calls_named, choices))
    call = InferenceCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        operation_name=operation_name,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        response_id=facts.response_id,
        provider=facts.provider,
        request_model=facts.request_model,
        response_model=facts.response_model,
        parameters=facts.parameters,
        input_messages=facts.input_messages,
        choices=choices,
        prompt_token_ids=facts.prompt_token_ids,
        conventions=facts.conventions,
    )
    has_extras = recording.names.memo(art.has_extras)
    return msgspec.structs.replace(  # in two steps: more than 15 arguments at once take four times as long
        call,
        previous_response_id=facts.previous_response_id,
        tools=facts.tools,
        usage=facts.usage,
        policy_version=facts.policy_version,
        error_type=error_type,
        error=error,
        stream=facts.stream,
        prompt_known=facts.prompt_known,
        answer_known=facts.answer_known,
        gaps=find_gaps(recording, facts),
        has_instructions=facts.has_instructions,
        env_state=art.read_env_state(recording.reader()) if has_extras else {},
        extra=art.read_extra(recording.reader()) if has_extras else {},
    )


def _read_facts(recording: Recording) -> CallFacts:
    """Read every dialect that may be on the span, the most trusted first, and merge what each recorded."""
    dialects = all_dialects if recording.span.events or recording.logs else attribute_dialects
    facts, alone = NO_FACTS, False
    for dialect in recording.names.memo(dialects):
        if alone and dialect.matches is not None:
            continue
        new_facts = dialect.read(recording, facts)
        if new_facts is not None:
            new_facts = _with_source(new_facts, dialect.known)
            facts = new_facts if facts is NO_FACTS else merge_facts(facts, new_facts)
            alone = alone or dialect.alone
    return facts


def _with_source(facts: CallFacts, known: Known) -> CallFacts:
    """Say how a dialect knows the prompt and the answer that it read, where it does not say so itself."""
    prompt = known if facts.prompt_known is None and facts.input_messages is not None else facts.prompt_known
    answer = known if facts.answer_known is None and facts.choices is not None else facts.answer_known
    if prompt is facts.prompt_known and answer is facts.answer_known:
        return facts
    return msgspec.structs.replace(facts, prompt_known=prompt, answer_known=answer)


def _without_batch_prompts(facts: CallFacts) -> CallFacts:
    """Move several prompts of one text completion to the parameters, because there is no shared prompt.

    A batch has one prompt per choice. Instrumentors record them as user messages of one prompt.
    """
    messages = facts.input_messages or ()
    if len(messages) < 2 or any(message.role != "user" for message in messages):
        return facts
    prompts = {"prompt": [message.content for message in messages]}
    return msgspec.structs.replace(facts, input_messages=None, parameters={**prompts, **facts.parameters})


def _without_echo(facts: CallFacts) -> CallFacts:
    """Drop the choices of a request with `echo`: each may begin with the prompt, in its text and in its tokens."""
    return msgspec.structs.replace(facts, choices=None) if values.flag(facts.parameters.get("echo")) else facts


def _without_error_reasons(facts: CallFacts) -> CallFacts:
    """Give the choices of a completed response that ended in `error` the reason that the Responses API gives."""
    choices = tuple(
        _with_finish_reason(choice, completed_reason(tool_calls=bool(choice.message.tool_calls)))
        if choice.finish_reason == ERROR_FINISH_REASON
        else choice
        for choice in facts.choices or ()
    )
    return msgspec.structs.replace(facts, choices=choices) if choices else facts


def _ended_in_error(choices: Sequence[Choice] | None, reasons: Sequence[str | None]) -> bool:
    """Whether a choice ended in an error, which some instrumentors record as its finish reason."""
    if ERROR_FINISH_REASON in reasons:
        return True
    for choice in choices or ():  # noqa: SIM110 # any() costs twice as much, and this is asked of every call
        if choice.finish_reason == ERROR_FINISH_REASON:
            return True
    return False


def _with_finish_reasons(choices: Sequence[Choice], reasons: Sequence[str | None]) -> tuple[Choice, ...]:
    """Give choices without a finish reason the one of the span. An error is not a finish reason."""
    return tuple(_with_finish_reason(choice, _finish_reason(choice, reasons)) for choice in choices)


def _finish_reason(choice: Choice, reasons: Sequence[str | None]) -> str | None:
    reason = choice.finish_reason
    if reason is None and choice.index < len(reasons):
        reason = reasons[choice.index]
    return None if reason == ERROR_FINISH_REASON else reason


def _stopped_with_tool_calls(choices: Sequence[Choice]) -> bool:
    for choice in choices:  # noqa: SIM110 # any() costs twice as much
        if choice.finish_reason == "stop" and choice.message.tool_calls:
            return True
    return False


def _with_tool_calls_named(choice: Choice) -> Choice:
    """Correct the finish reason of an answer with tool calls, which Gemini and some instrumentors call `stop`."""
    if choice.finish_reason != "stop" or not choice.message.tool_calls:
        return choice
    return _with_finish_reason(choice, completed_reason(tool_calls=True))


def _with_finish_reason(choice: Choice, reason: str | None) -> Choice:
    return choice if reason == choice.finish_reason else msgspec.structs.replace(choice, finish_reason=reason)
