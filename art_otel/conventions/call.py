"""Calls: one inference span and its log records -> InferenceCall; several recordings of one call -> one.

`parse_call` never raises for any content of attributes, events or log records: what cannot be read is unknown, and a
gap says which attribute. `merge_calls` is told which recordings are one call by
`art_otel.trajectories.inference_calls`; a framework may show an answer otherwise than it was sampled: without its
leading `<think>` block, or a tool call as JSON text (structured output). That is still the same answer, and a call
keeps it as the client recorded it; two answers with different thinking are not the same.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Final

import msgspec

from art_otel.calls import CONTENT_GAPS, Choice, Gap, InferenceCall, Known, Message, ToolCall
from art_otel.conventions import values
from art_otel.conventions.attribute_names import AttributeNames, NameFamilies
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.dialects import DIALECTS, all_dialects, art, attribute_dialects, genai
from art_otel.conventions.dialects.openinference import RAW
from art_otel.conventions.facts import NO_FACTS, CallFacts, lacks_what_server_has, merge_facts, merge_prompts, with_gap
from art_otel.conventions.failures import failure_kind
from art_otel.conventions.gaps import find_gaps, with_several_prompts, without_ids, without_miscounted_ids
from art_otel.conventions.recorder_losses import is_error_unknown
from art_otel.conventions.vocabulary import (
    EARLY_ENDS,
    ERROR_FINISH_REASON,
    NOTHING_OF_CLAUDE,
    OTHER_FINISH_REASON,
    REFUSAL,
    TEXT_COMPLETION,
    UNKNOWN_ROLE,
    calls_with_objects,
    completed_reason,
    failure_of,
    has_no_names,
    names_no_tool_calls,
    operation_of_name,
)
from art_otel.errors import UsageError
from art_otel.spans import LogRecord, Span

_ABANDONED: Final = ("_OTHER", "GeneratorExit")
"""What GenAI's instrumentor writes as the error of a stream that the app dropped; of one that it closed it writes the
finish reason `error`. Neither is a failure."""


def parse_call(span: Span, logs: Sequence[LogRecord] = (), families: NameFamilies | None = None) -> InferenceCall:
    """Parse the call that an inference span and its log records describe. `agent` and `step` come from the span tree.

    `families` are those of the span's attribute names, if the caller has them already.
    """
    recording = SpanRecording(span, logs, AttributeNames(span.attributes, families))
    facts = _without_unsent_names(_with_assistants(_read_facts(recording)))
    operation_name = facts.operation_name or operation_of_name(span.name) or "chat"
    if operation_name == TEXT_COMPLETION:
        facts = _without_echo(with_several_prompts(_without_batch_prompts(facts)))
    reasons = genai.finish_reasons(recording)
    error_type, error = failure_of(span)
    if is_error_unknown(span.scope.name, facts.response_id) and span.status != "error":
        reasons = ()
        facts = _without_error_reasons(facts)
    if facts.stream and facts.usage is None:
        reasons = tuple(None if reason == OTHER_FINISH_REASON else reason for reason in reasons)
        facts = _without_other_reasons(facts)
    ended_in_error = _ended_in_error(facts.choices, reasons)
    if facts.closed_by_app is None and ended_in_error and error_type is None and error is None:
        error_type = ERROR_FINISH_REASON
    # The app closed the stream on purpose, which instrumentors record as an error.
    if facts.closed_by_app is not None and error_type in _ABANDONED:
        error_type = error = None
    if error_type is None and error is None and _is_empty_answer(facts, reasons):
        empty = Choice(index=0, message=Message(role="assistant", content=""), finish_reason="stop")
        facts = msgspec.structs.replace(facts, choices=(empty,), answer_known=facts.prompt_known)
    choices = facts.choices
    if choices and (reasons or ended_in_error):
        choices = tuple(_with_finish_reason(choice, _finish_reason(choice, reasons)) for choice in choices)
    if choices and names_no_tool_calls(facts.provider, operation_name, facts.response_id):
        choices = tuple(map(_with_tool_calls_named, choices))
    if choices and _lacks_arguments(choices) and calls_with_objects(facts.provider, facts.request_model):
        choices = tuple(map(_with_objects, choices))
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
    has_extras = recording.families.memo(art.has_extras)
    return msgspec.structs.replace(  # in two steps: more than 15 arguments at once take four times as long
        call,
        previous_response_id=facts.previous_response_id,
        tools=facts.tools,
        usage=facts.usage,
        policy_version=facts.policy_version or next(_versions(facts.choices), None),
        policy_version_end=facts.policy_version_end,
        error_type=error_type,
        error=error,
        failure=None if error_type is None and error is None else failure_kind(span),
        stream=facts.stream,
        closed_by_app=facts.closed_by_app,
        prompt_known=facts.prompt_known,
        answer_known=facts.answer_known,
        gaps=find_gaps(recording, facts, reasons),
        has_instructions=facts.has_instructions,
        logprobs_mode=art.read_logprobs_mode(span) or facts.logprobs_mode,
        env_state=art.read_env_state(recording.reader()) if has_extras else {},
        extra=art.read_extra(recording.reader()) if has_extras else {},
    )


def _versions(choices: Sequence[Choice] | None) -> Iterator[str]:
    """The weight versions that sampled the choices, in order."""
    return (span.version for choice in choices or () for span in choice.weight_versions or ())


def _read_facts(recording: SpanRecording) -> CallFacts:
    """Read every dialect that may be on the span, the most trusted first, and merge their facts."""
    # Every prompt has tokens, so counts that are all 0 mean that the server sent none. An empty answer beside such
    # counts was not given by the server, either (Strands writes it for a stream that broke).
    dialects = all_dialects if recording.span.events or recording.logs else attribute_dialects
    facts, alone, is_uncounted = NO_FACTS, False, False
    for dialect in recording.families.memo(dialects):
        if alone and dialect.shown_by:
            continue
        new_facts = dialect.read(recording, facts)
        if new_facts is not None:
            if new_facts.usage is not None and not any(msgspec.structs.astuple(new_facts.usage)):
                is_uncounted, new_facts = True, msgspec.structs.replace(new_facts, usage=None)
            new_facts = without_miscounted_ids(_with_source(new_facts, dialect.known))
            facts = new_facts if facts is NO_FACTS else merge_facts(facts, new_facts)
            alone = alone or dialect.alone
    if any(gap.kind == "miscounted" for gap in facts.gaps):
        return without_ids(facts)  # another dialect without a count has recorded the same doubtful ids
    if is_uncounted and facts.usage is None and facts.choices and all(map(_is_finished_empty, facts.choices)):
        has_failed = failure_of(recording.span) != (None, None)
        return facts if has_failed else with_gap(facts, "off", "an empty answer, and no tokens counted", field="answer")
    return facts


def _is_finished_empty(choice: Choice) -> bool:
    return choice.finish_reason is not None and choice.message.says_nothing and not choice.token_ids


def _with_assistants(facts: CallFacts) -> CallFacts:
    """Give sampled messages the role `assistant` if the recorder does not know their role."""
    choices = facts.choices or ()
    if UNKNOWN_ROLE not in [choice.message.role for choice in choices]:
        return facts
    return msgspec.structs.replace(facts, choices=tuple(map(_by_assistant, choices)))


def _by_assistant(choice: Choice) -> Choice:
    return msgspec.structs.replace(choice, message=msgspec.structs.replace(choice.message, role="assistant"))


def _without_unsent_names(facts: CallFacts) -> CallFacts:
    """Leave out names of a prompt's messages that a framework (LangChain) adds, if the API has no names."""
    prompt = facts.input_messages or ()
    if facts.prompt_known == "verbatim body" or not has_no_names(facts.provider, facts.response_id):
        return facts
    if all(message.name is None for message in prompt):
        return facts
    unnamed = tuple(msgspec.structs.replace(message, name=None) if message.name else message for message in prompt)
    return msgspec.structs.replace(facts, input_messages=unnamed)


def _with_source(facts: CallFacts, known: Known) -> CallFacts:
    """Set how the prompt and the answer are known to the dialect's default, if the dialect did not set it."""
    prompt = known if facts.prompt_known is None and facts.input_messages is not None else facts.prompt_known
    answer = known if facts.answer_known is None and facts.choices is not None else facts.answer_known
    if prompt is facts.prompt_known and answer is facts.answer_known:
        return facts
    return msgspec.structs.replace(facts, prompt_known=prompt, answer_known=answer)


def _without_batch_prompts(facts: CallFacts) -> CallFacts:
    """Move several prompts of one text completion to the parameters, because the choices have no common prompt.

    A batch has one prompt per choice, which instrumentors record as user messages of one prompt.
    """
    messages = facts.input_messages or ()
    if len(messages) < 2 or any(message.role != "user" for message in messages):
        return facts
    prompts = {"prompt": [message.content for message in messages]}
    return msgspec.structs.replace(facts, input_messages=None, parameters={**prompts, **facts.parameters})


def _without_echo(facts: CallFacts) -> CallFacts:
    """Drop the choices of a request with `echo`: their texts and tokens may begin with the prompt."""
    return msgspec.structs.replace(facts, choices=None) if values.flag(facts.parameters.get("echo")) else facts


def _without_error_reasons(facts: CallFacts) -> CallFacts:
    """Replace a meaningless finish reason `error` by the reason of a completed response (`is_error_unknown`)."""
    choices = tuple(
        _with_finish_reason(choice, completed_reason(tool_calls=bool(choice.message.tool_calls)))
        if choice.finish_reason == ERROR_FINISH_REASON
        else choice
        for choice in facts.choices or ()
    )
    return msgspec.structs.replace(facts, choices=choices) if choices else facts


def _without_other_reasons(facts: CallFacts) -> CallFacts:
    """Leave out the finish reason `other`, which the AI SDK writes for streams without a reason and a count."""
    choices = tuple(
        _with_finish_reason(choice, None) if choice.finish_reason == OTHER_FINISH_REASON else choice
        for choice in facts.choices or ()
    )
    return msgspec.structs.replace(facts, choices=choices) if choices else facts


def _is_empty_answer(facts: CallFacts, reasons: Sequence[str | None]) -> bool:
    """Whether the model really gave an empty answer, for which recorders write no message.

    No token was counted (for Claude at most those of an empty answer). With another model a single token may be an
    unrecorded answer (`yes`); in a stream the recorder may have lost the answer.
    """
    if facts.choices is not None or not facts.input_messages or facts.stream:
        return False
    counted = None if facts.usage is None else facts.usage.output_tokens
    most = NOTHING_OF_CLAUDE if facts.provider == "anthropic" else 0
    return tuple(reasons) == ("stop",) and counted is not None and counted <= most


def _ended_in_error(choices: Sequence[Choice] | None, reasons: Sequence[str | None]) -> bool:
    """Whether a choice has the finish reason `error`, with which some instrumentors record a failed call."""
    if ERROR_FINISH_REASON in reasons:
        return True
    for choice in choices or ():  # noqa: SIM110 # any() costs twice as much, and this is asked of every call
        if choice.finish_reason == ERROR_FINISH_REASON:
            return True
    return False


def _finish_reason(choice: Choice, reasons: Sequence[str | None]) -> str | None:
    """The finish reason of a choice, else the span's reason for it. An error is no finish reason.

    The span's reason for a cut answer wins: beside the message a recorder may write a status (`incomplete`), or a
    reason that it derives from the content (`tool_calls`).
    """
    reason = choice.finish_reason
    if choice.index < len(reasons) and (reason is None or reasons[choice.index] in (*EARLY_ENDS, REFUSAL)):
        reason = reasons[choice.index]
    return None if reason == ERROR_FINISH_REASON else reason


def _with_tool_calls_named(choice: Choice) -> Choice:
    """Correct the finish reason `stop`, which Gemini and some instrumentors give to an answer with tool calls."""
    if choice.finish_reason != "stop" or not choice.message.tool_calls:
        return choice
    return _with_finish_reason(choice, completed_reason(tool_calls=True))


def _lacks_arguments(choices: Sequence[Choice]) -> bool:
    return "" in [call.arguments for choice in choices for call in choice.message.tool_calls]


def _with_objects(choice: Choice) -> Choice:
    """Give tool calls without arguments an empty object: OpenLLMetry writes none if the stream had no text of them."""
    calls = choice.message.tool_calls
    if all(call.arguments for call in calls):
        return choice
    named = tuple(
        call if call.arguments else msgspec.structs.replace(call, arguments="{}", exact=False) for call in calls
    )
    return msgspec.structs.replace(choice, message=msgspec.structs.replace(choice.message, tool_calls=named))


def _with_finish_reason(choice: Choice, reason: str | None) -> Choice:
    return choice if reason == choice.finish_reason else msgspec.structs.replace(choice, finish_reason=reason)


_TRUST: Final = {dialect.convention: rank for rank, dialect in enumerate(DIALECTS)}


def merge_calls(calls: Sequence[InferenceCall]) -> InferenceCall:
    """Several recordings of one call, the outermost first, as one. Raises UsageError when there is none.

    Identity and times are the outermost one's. A gap of one recording does not count where another is whole. The most
    trusted convention's facts win whoever's span they were on, and of equally trusted ones those of the recording that
    knows the response. The prompt is the one that was sent, the
    answer the one that was sampled.
    """
    if not calls:
        raise UsageError("merge_calls needs at least one recording of the call; pass the outermost one first")
    if len(calls) == 1:
        return calls[0]
    sampled = _sampled(calls)
    trusted = sorted((with_sampled(call, sampled) for call in calls), key=_distrust)
    facts = reduce(merge_facts, map(_facts, trusted))
    if any(call.has_gap("miscounted") for call in calls):
        facts = without_ids(facts)
    failed = _failed(calls)
    outermost, prompt = calls[0], _sent(calls)
    is_whole = any(_is_whole(call) and request_key(call) == _texts(prompt) for call in calls)
    return msgspec.structs.replace(
        outermost,
        **{
            **msgspec.structs.asdict(facts),
            "input_messages": prompt,
            "prompt_known": next(
                (call.prompt_known for call in _nearest(calls) if call.input_messages is not None), None
            ),
            "gaps": _gaps(calls, facts, prompt, is_whole=is_whole),
        },
        error_type=None if failed is None else failed.error_type,
        error=None if failed is None else failed.error,
        # The outermost recording may have less of the message than one nearer to the server.
        failure=None if failed is None else next((call.failure for call in calls if call.failure is not None), None),
        agent=next((call.agent for call in calls if call.agent is not None), None),
        step=next((call.step for call in calls if call.step is not None), None),
        env_state={name: value for call in reversed(calls) for name, value in call.env_state.items()},
        extra={name: value for call in reversed(calls) for name, value in call.extra.items()},
    )


def request_key(call: InferenceCall) -> tuple[str, ...]:
    """A key of what was asked: the texts of the prompt, because recorders lose names, reasoning and images."""
    return _texts(call.input_messages)


def _texts(messages: Sequence[Message] | None) -> tuple[str, ...]:
    return tuple(message.content or "" for message in messages or ())


def _distrust(call: InferenceCall) -> tuple[bool, int, bool]:
    rank = min((_TRUST.get(name, len(_TRUST)) for name in call.conventions), default=len(_TRUST))
    return call.has_gap(*CONTENT_GAPS), rank, call.response_id is None


def _is_whole(call: InferenceCall) -> bool:
    return not call.has_gap(*CONTENT_GAPS) and bool(call.input_messages and call.choices)


def _gaps(
    calls: Sequence[InferenceCall], facts: CallFacts, prompt: Sequence[Message] | None, *, is_whole: bool
) -> tuple[Gap, ...]:
    """The gaps of the merged call: where one recording is whole, only gaps that no recording fills are left.

    The definitions of tools may be whole in a recording that is not.
    """
    gaps = dict.fromkeys(facts.gaps) | {gap: None for call in calls for gap in call.gaps}
    lacking = {gap for call in calls for gap in call.gaps if lacks_what_server_has(gap, call.input_messages, prompt)}
    has_tools = any(call.tools is not None and all(gap.field != "tools" for gap in call.gaps) for call in calls)
    filled = {gap for gap in gaps if is_whole or (has_tools and gap.field == "tools")}
    return tuple(
        gap
        for gap in gaps
        if gap.kind not in CONTENT_GAPS or gap in lacking or (gap not in filled and gap in facts.gaps)
    )


def _facts(call: InferenceCall) -> CallFacts:
    """The facts of the call without its prompt."""
    return CallFacts(**{name: getattr(call, name) for name in CallFacts.__struct_fields__ if name != "input_messages"})


def _sent(calls: Sequence[InferenceCall]) -> tuple[Message, ...] | None:
    """The prompt, as who saw the request wrote it: one that knows the response, with the body, else the innermost."""
    prompts = [call.input_messages for call in _nearest(calls) if call.input_messages is not None]
    return reduce(merge_prompts, prompts) if prompts else None


def _sampled(calls: Sequence[InferenceCall]) -> dict[int, Choice]:
    """The answers, by their index, as who saw the response wrote them."""
    choices = next((call.choices for call in _nearest(calls) if call.choices), ())
    return {choice.index: choice for choice in choices}


def _nearest(calls: Sequence[InferenceCall]) -> list[InferenceCall]:
    """The recordings by how near they are to the server."""
    inside_out = calls[::-1]
    return sorted(inside_out, key=lambda call: (call.response_id is None, RAW not in call.conventions))


def _failed(calls: Sequence[InferenceCall]) -> InferenceCall | None:
    """The outermost recording that failed, unless a failure further in did not matter; None where none counts.

    The outermost one's failure always counts. One further in was retried or handled when a recording that did not fail
    shows how the completion finished; without that proof it counts (OpenLLMetry calls a dropped stream OK).
    """
    failed = next((call for call in calls if call.failed), None)
    if failed is not None and failed is not calls[0] and any(not call.failed and _finished(call) for call in calls):
        return None
    return failed


def _finished(call: InferenceCall) -> bool:
    return bool(call.choices) and all(choice.finish_reason is not None for choice in call.choices or ())


_THINKING: Final = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)


def without_thinking(text: str) -> str:
    """The text without a `<think>` block at its start."""
    thinking = _THINKING.match(text)
    return text if thinking is None else text[thinking.end() :]


def is_same_but_for_thinking(text: str, other: str) -> bool:
    """Whether the texts are equal, or one is the other without the thinking."""
    return text == other or without_thinking(text) == other or text == without_thinking(other)


def is_structured_output(message: Message, other: Message) -> bool:
    """Whether one has as JSON text what the other has as the arguments of its one tool call."""
    return _is_json_of(message.content, other.tool_calls) or _is_json_of(other.content, message.tool_calls)


def with_sampled(call: InferenceCall, sampled: Mapping[int, Choice]) -> InferenceCall:
    """Put the sampled answers, by their index, where the call has another form of them."""
    choices = tuple(_as_sampled(choice, sampled.get(choice.index, choice)) for choice in call.choices or ())
    return msgspec.structs.replace(call, choices=choices) if choices != (call.choices or ()) else call


def _as_sampled(choice: Choice, sampled: Choice) -> Choice:
    message = choice.message
    if message == sampled.message or not _is_another_form(message, sampled.message):
        return choice
    finish_reason = sampled.finish_reason or choice.finish_reason
    return msgspec.structs.replace(choice, message=sampled.message, finish_reason=finish_reason)


def _is_another_form(message: Message, sampled: Message) -> bool:
    text, sampled_text = (message.content or "").strip(), (sampled.content or "").strip()
    if text and sampled_text and text != sampled_text:
        return is_same_but_for_thinking(text, sampled_text)
    return is_structured_output(message, sampled)


def _is_json_of(text: str | None, tool_calls: tuple[ToolCall, ...]) -> bool:
    if not text or len(tool_calls) != 1:
        return False
    try:
        return bool(json.loads(text) == json.loads(tool_calls[0].arguments))
    except (ValueError, RecursionError):
        return False
