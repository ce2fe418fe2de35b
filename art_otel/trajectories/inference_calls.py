"""Inference calls: the LLM calls of a rollout, each once, in the order of their start.

Several instrumentors may record one request, and a later fetch may record its answer:

    spans                                       one call
    chat (framework)                            span id, agent and step of the framework's span,
    └─ chat (client)     id, token ids          the ids of the client's span,
       retrieve (later)  the answer             the answer that was fetched

`duplicate_rules` finds the recordings of one call.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.calls import Gap, InferenceCall, Message
from art_otel.conventions import (
    NameFamilies,
    Role,
    agent_name,
    begins_exchange,
    exchange_of,
    failure_kind,
    failure_of,
    integer,
    is_completion_event,
    is_reason_assumed,
    is_refusal,
    parse_call,
    retried_tool_call,
    span_env_state,
    span_extra,
    with_agent_content,
    with_agent_conversation,
    with_retried_tools,
)
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree, Value
from art_otel.trajectories.duplicate_rules import find_calls
from art_otel.trajectories.rollouts import RolloutSpans
from art_otel.trajectories.surroundings import AncestorContext, IntervalIndex, contexts_above, find_contexts

MAX_CONTINUED_MESSAGES: Final = 16 << 20
"""The most messages of one rollout's rebuilt prompts (`continue_responses`), enough for a chain of 4,000 calls: a
longer chain would fill the memory, because the prompts grow quadratically."""


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start. `call_of` has the span id of the call for the key of every inference span."""

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]


def record_calls(
    rollouts: Sequence[RolloutSpans],
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
    families: Mapping[SpanKey, NameFamilies],
) -> dict[RolloutSpans, RecordedCalls]:
    """Parse the inference spans of each rollout of a tree, and merge those that describe one request."""
    contexts = find_contexts(tree, roles, {key for rollout in rollouts for key in rollout.root_keys})
    above = contexts_above(contexts, tree)
    steps: dict[SpanKey, tuple[dict[str, Value], dict[str, Value]]] = {}  # state and extra by step, each read once

    def parse(rollout: RolloutSpans, role: Role) -> dict[SpanKey, InferenceCall]:
        keys = sorted([(tree.starts[key], key) for key in rollout.keys if roles[key] == role])
        return {key: parse_call(tree.spans[key], logs.get(key, ()), families[key]) for _, key in keys}

    recorded: dict[RolloutSpans, RecordedCalls] = {}
    for rollout in rollouts:
        parsed = _without_assumed_reasons(parse(rollout, "inference"), tree)
        tools = [tree.spans[key] for key in rollout.keys if roles[key] == "tool"]
        retried = {call_id for span in tools if (call_id := retried_tool_call(span)) is not None}
        calls: list[InferenceCall] = []
        call_of: dict[SpanKey, str] = {}
        for parsed_call, spans in find_calls(parsed, tree, above):
            call = parsed_call
            if call.choices and not (call.has_answer or call.failed):
                call = _failed_with_agent(call, spans[0], tree, roles)
            call = _in_context(call, spans, contexts, steps)
            calls.append(with_retried_tools(call, spans[0], retried) if retried else call)
            for span in spans:
                call_of[span.key] = call.span_id
        answered = with_fetched_answers(calls, lambda rollout=rollout: parse(rollout, "retrieval").values())
        calls = [*continue_responses(answered, MAX_CONTINUED_MESSAGES)]
        recorded[rollout] = RecordedCalls(calls=tuple(calls), call_of=call_of)
    return recorded


def _without_assumed_reasons(
    parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree
) -> Mapping[SpanKey, InferenceCall]:
    """Remove finish reasons that a recorder made up for broken streams.

    Such a stream has no token count, although other calls of the model have one: the count comes with the stream's end.
    """
    assumed = [key for key, call in parsed.items() if is_reason_assumed(call, tree.spans[key])]
    counted = {call.request_model for call in parsed.values() if assumed and call.usage is not None}
    changed = dict(parsed)
    for key in assumed:
        if parsed[key].request_model in counted:
            choices = tuple(msgspec.structs.replace(one, finish_reason=None) for one in parsed[key].choices or ())
            changed[key] = msgspec.structs.replace(parsed[key], choices=choices)
    return changed


def _failed_with_agent(call: InferenceCall, span: Span, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> InferenceCall:
    """Mark a call without an answer as failed if its agent failed: pydantic-ai records refused streams as ok."""
    agent = tree.parent(span)
    if agent is None or roles[agent.key] != "agent":
        return call
    error_type, error = failure_of(agent)
    went_on = any(tree.starts[key] > tree.starts[span.key] for key in tree.children[agent.key])
    if (error_type is None and error is None) or went_on:
        return call
    return msgspec.structs.replace(call, choices=None, error_type=error_type, error=error, failure=failure_kind(agent))


def _in_context(
    call: InferenceCall,
    spans: Sequence[Span],
    contexts: Mapping[SpanKey, AncestorContext],
    steps: dict[SpanKey, tuple[dict[str, Value], dict[str, Value]]],
) -> InferenceCall:
    """Add the agent, step, environment state and untrained mark that the call's spans and their ancestors have."""
    outermost = spans[0]
    ancestors = contexts[outermost.key]
    agent, step, untrained = ancestors.agent, ancestors.step, ancestors.untrained
    if ancestors.content is not None:
        call = with_agent_content(call, outermost, ancestors.content)
    if ancestors.conversation is not None:
        call = with_agent_conversation(call, ancestors.conversation)
    if len(spans) > 1:
        agent = next(filter(None, map(agent_name, spans)), agent)
        untrained = next(filter(None, (contexts[span.key].untrained for span in spans)), None)
    if step is not None and step is not outermost:
        if step.key not in steps:
            steps[step.key] = span_env_state(step), span_extra(step)
        state, extra = steps[step.key]
        if state or extra:
            call = msgspec.structs.replace(
                call, env_state={**deepcopy(state), **call.env_state}, extra={**deepcopy(extra), **call.extra}
            )
    if agent is None and step is None and untrained is None:
        return call
    index = None if step is None else step_index(step)
    return msgspec.structs.replace(call, agent=agent, step=index, marked_untrained=untrained)


def step_index(span: Span) -> int | None:
    """The index of a step span; None if it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))


def with_fetched_answers(
    calls: Sequence[InferenceCall], fetch: Callable[[], Iterable[InferenceCall]]
) -> list[InferenceCall]:
    """Give calls that were answered in the background the answers that were fetched later.

        create(background=True) -> queued       the call
        retrieve(id) -> the answer              no call of its own: nothing is sampled by a fetch

    If several calls have the response id, the first gets the answer.
    """
    if not any(map(_is_unanswered, calls)):
        return [*calls]
    fetched = {one.response_id: one for one in fetch() if one.response_id is not None and not _is_unanswered(one)}
    answered: list[InferenceCall] = []
    for call in calls:
        answer = fetched.pop(call.response_id, None) if call.response_id and _is_unanswered(call) else None
        if answer is not None:
            gaps = [gap for gap in call.gaps if not gap.field.startswith("answer")]
            gaps += [gap for gap in answer.gaps if gap.field.startswith("answer") or gap.kind == "compacted"]
            call = msgspec.structs.replace(  # noqa: PLW2901 # same call
                call,
                choices=answer.choices,
                answer_known=answer.answer_known,
                usage=call.usage or answer.usage,
                tools=answer.tools if call.tools is None else call.tools,
                gaps=tuple(dict.fromkeys(gaps)),
            )
        answered.append(call)
    return answered


def _is_unanswered(call: InferenceCall) -> bool:
    """Whether a call that did not fail has no answer, or an empty one."""
    choices = call.choices or ()
    return not call.failed and all(choice.token_ids is None and choice.message.says_nothing for choice in choices)


def continue_responses(calls: Sequence[InferenceCall], limit: int) -> Sequence[InferenceCall]:
    """Rebuild the whole prompts of calls with a `previous_response_id`, as the server saw them.

    A prompt that cannot be rebuilt, or that would go over the `limit` of messages in all, is unknown and gets a gap.
    """
    if all(call.previous_response_id is None for call in calls):
        return calls
    responses: dict[str, InferenceCall] = {}
    continued: list[InferenceCall] = []
    for call in calls:
        if call.previous_response_id is not None:
            earlier = responses.get(call.previous_response_id)
            prompt = None if earlier is None else _continued(earlier, call)
            gaps = dict.fromkeys(call.gaps)
            if earlier is None or prompt is None or len(prompt) > limit:
                prompt = None
                was_refused = call.failed and call.choices is None and is_refusal(call.error_type, call.error)
                if not was_refused:  # a server that refuses the request never made a whole prompt
                    gaps[Gap(kind="history on the server", field="prompt", evidence=call.previous_response_id)] = None
            else:
                limit -= len(prompt)
                for gap in earlier.gaps:  # the rebuilt prompt contains the earlier call's gaps
                    if gap.field in ("prompt", "call", "answer", "answer[0]") and gap.kind != "contradicted":
                        gaps[msgspec.structs.replace(gap, field="prompt")] = None
            call = msgspec.structs.replace(call, input_messages=prompt, gaps=tuple(gaps))  # noqa: PLW2901 # same call
        if call.response_id is not None:
            responses[call.response_id] = call
        continued.append(call)
    return continued


def _continued(earlier: InferenceCall, call: InferenceCall) -> tuple[Message, ...] | None:
    """Rebuild a prompt: new instructions, the earlier prompt without its instructions, its answer, the new input.

        earlier  instructions A, user q -> "a"        rebuilt   instructions B, user q, "a", user q2
        call     instructions B, user q2

    OpenAI's Responses API: "instructions from the previous response are not carried over". Some frameworks record the
    whole history although they send only its end: a prompt that has the history already stays as it is.
    """
    if earlier.input_messages is None or not earlier.choices or call.input_messages is None:
        return None
    instructions, added = _split_instructions(call)
    _, history = _split_instructions(earlier)
    was_answered = len(added) > len(history) and added[len(history)].role == "assistant"
    if was_answered and added[: len(history)] == history and call.prompt_known != "verbatim body":
        return call.input_messages
    return (*instructions, *history, earlier.choices[0].message, *added)


def _split_instructions(call: InferenceCall) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a prompt, and the messages after them; a system message among the input items is no such."""
    prompt = call.input_messages or ()
    is_first = bool(prompt) and prompt[0].role == "system" and call.has_instructions is not False
    return (prompt[:1], prompt[1:]) if is_first else ((), prompt)


# The log records of calls.


class CorrelatedLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The log records by span, and the `others`, whose span is missing. `duplicate` counts repeated records."""

    of_spans: Mapping[SpanKey, list[LogRecord]] = {}
    others: Sequence[LogRecord] = ()
    duplicate: int = 0

    @property
    def joined(self) -> int:
        """How many records reached a span."""
        return sum(map(len, self.of_spans.values()))


def correlate_logs(logs: Iterable[LogRecord], tree: SpanTree, roles: Mapping[SpanKey, Role]) -> CorrelatedLogs:
    """Find the span of each log record: the span that it names, or a call directly below this span.

        agent                   <- log record of a completion: OpenLLMetry names the current span, not the stream's
        └─ chat   ──────────    the only call that was running at that time, so the record is this call's

    The two bodies of an HTTP exchange are found in the same way; the second body may be logged after its call ended,
    so it follows the first one.
    """
    unique: dict[bytes, LogRecord] = {}
    duplicate = 0
    for log in logs:
        encoded = msgspec.msgpack.encode(log, order="deterministic")
        duplicate += encoded in unique
        unique[encoded] = log
    if not unique:
        return CorrelatedLogs()
    of_spans: dict[SpanKey, list[LogRecord]] = defaultdict(list)
    others: list[LogRecord] = []
    calls_below: dict[SpanKey, IntervalIndex[SpanKey]] = {}
    calls_asking: dict[str, set[SpanKey]] = {}
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        key = log.key
        if key not in tree.spans:
            others.append(log)
            continue
        exchange = exchange_of(log)
        if roles[key] != "inference" and (exchange is not None or is_completion_event(log)):
            if key not in calls_below:
                calls = [tree.spans[child] for child in tree.children.get(key, ()) if roles[child] == "inference"]
                calls_below[key] = IntervalIndex((call.start_ns, call.end_ns, call.key) for call in calls)
            running = calls_below[key].only_at(log.time_ns) or key
            if exchange is None:
                key = running
            elif begins_exchange(log):
                key = running
                ends = {call: tree.spans[call].end_ns for call in calls_asking.get(exchange, ())}
                still_asking = {call for call, end_ns in ends.items() if end_ns is None or end_ns >= log.time_ns}
                calls_asking[exchange] = {key} | still_asking
            else:
                asking = calls_asking.pop(exchange, {running})
                key = next(iter(asking)) if len(asking) == 1 else key
        of_spans[key].append(log)
    return CorrelatedLogs(of_spans=dict(of_spans), others=others, duplicate=duplicate)
