"""Inference calls: the LLM calls of one rollout, each once, in the order of their start.

`record_calls` parses the inference spans of a tree with the log records that belong to them, finds which are recordings
of one request, and adds what the spans around a call say: its agent, its step and the step's data.

Invariant: every inference span of a rollout is described by exactly one call. What several instrumentors recorded of
one request is one call under the outermost span. A call that continues an earlier response by its id has the prompt
that the server saw, whole, or no prompt. A policy version is what the call or its rollout says; that of one call is
never taken for another's.

Several instrumentors record one request, and some mark more than requests. `RULES` are applied one after another; each
joins the recordings that it shows to be of one call, and nothing else decides it. `DuplicateGroups` lets no rule join
recordings that contradict each other, or two recordings of one instrumentor. The rules for recordings around each other
and for streams that are recorded on two spans stand here, those for recordings that overlap in time in
`overlapping_recordings`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.calls import Gap, InferenceCall, Message
from art_otel.conventions import (
    NameFamilies,
    Role,
    agent_name,
    failure_kind,
    failure_of,
    integer,
    is_reason_assumed,
    is_request_only,
    is_wrapper_method,
    parse_call,
    recorder_of,
    retried_tool_call,
    span_env_state,
    span_extra,
    with_agent_content,
    with_agent_conversation,
    with_retried_tools,
)
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree, Value
from art_otel.trajectories.duplicate_groups import (
    CallRecording,
    DuplicateGroups,
    contradicts,
    has_same_id,
    have_same_answer,
    have_same_choices,
    ids_differ,
    may_be_one,
    models_differ,
    prompts_differ,
    read_recordings,
    usage_differs,
)
from art_otel.trajectories.overlapping_recordings import (
    LatestOpen,
    attach_doubles,
    join_enclosed,
    join_failures,
    join_late_streams,
    join_one_response,
    join_unanswered,
    join_unsurrounded,
)
from art_otel.trajectories.rollouts import RolloutSpans
from art_otel.trajectories.span_context import Ancestry

MAX_CONTINUED_MESSAGES: Final = 16 << 20
"""Messages of a rollout's prompts that were put together by response id: a chain of 4,000 calls has as many."""


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start.

    `call_of` leads from every inference span to its call's span id.
    """

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]


class _TreeContext(NamedTuple):
    """A tree with its roles, log records, families of names, ancestry and step data."""

    tree: SpanTree
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    families: Mapping[SpanKey, NameFamilies]
    ancestry: Ancestry
    steps: "StepData"

    def parse(self, key: SpanKey) -> InferenceCall:
        """Parse the call that a span and its log records describe."""
        return parse_call(self.tree.spans[key], self.logs.get(key, ()), self.families[key])


def record_calls(
    rollouts: Sequence[RolloutSpans],
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
    families: Mapping[SpanKey, NameFamilies],
) -> dict[RolloutSpans, RecordedCalls]:
    """Parse the inference spans of each rollout of a tree and merge those that describe one request."""
    roots = {key for rollout in rollouts for key in rollout.root_keys}
    context = _TreeContext(
        tree=tree,
        roles=roles,
        logs=logs,
        families=families,
        ancestry=Ancestry(tree, roles, roots),
        steps=StepData(),
    )
    return {rollout: _record(rollout, context) for rollout in rollouts}


def _record(rollout: RolloutSpans, context: _TreeContext) -> RecordedCalls:
    tree = context.tree
    inference = sorted([(tree.starts[key], key) for key in rollout.keys if context.roles[key] == "inference"])
    parsed = _without_assumed_reasons({key: context.parse(key) for _, key in inference}, tree)
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    tools = [tree.spans[key] for key in rollout.keys if context.roles[key] == "tool"]
    retried = {call_id for span in tools if (call_id := retried_tool_call(span)) is not None}
    for call, spans in find_calls(parsed, tree, context.ancestry):
        in_context = _in_context(call, spans, context)
        calls.append(with_retried_tools(in_context, spans[0], retried) if retried else in_context)
        for span in spans:
            call_of[span.key] = call.span_id
    answered = with_fetched_answers(calls, lambda: _fetched(rollout, context))
    return RecordedCalls(calls=tuple(continue_responses(answered, MAX_CONTINUED_MESSAGES)), call_of=call_of)


def _without_assumed_reasons(
    parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree
) -> Mapping[SpanKey, InferenceCall]:
    """Leave out finish reasons that a recorder assumed, of streams without the count that others of the model have."""
    assumed = [key for key, call in parsed.items() if is_reason_assumed(call, tree.spans[key])]
    counted = {call.request_model for call in parsed.values() if assumed and call.usage is not None}
    broken = [key for key in assumed if parsed[key].request_model in counted]
    return {**parsed, **{key: _without_reasons(parsed[key]) for key in broken}} if broken else parsed


def _without_reasons(call: InferenceCall) -> InferenceCall:
    choices = tuple(msgspec.structs.replace(choice, finish_reason=None) for choice in call.choices or ())
    return msgspec.structs.replace(call, choices=choices)


def _fetched(rollout: RolloutSpans, context: _TreeContext) -> list[InferenceCall]:
    """What fetches of stored responses brought, in the order of their start."""
    keys = sorted([(context.tree.starts[key], key) for key in rollout.keys if context.roles[key] == "retrieval"])
    return [context.parse(key) for _, key in keys]


def with_fetched_answers(
    calls: Sequence[InferenceCall], fetch: Callable[[], Iterable[InferenceCall]]
) -> list[InferenceCall]:
    """Give calls that were answered in the background the answers that were fetched later.

    A fetch samples nothing, and is no call of its own: create(background=True) -> queued, retrieve(id) -> the answer.
    Of several recordings of a call that were not joined, the first gets it.
    """
    if not any(_is_unanswered(call) for call in calls):
        return [*calls]
    fetched: dict[str | None, InferenceCall] = {
        one.response_id: one for one in fetch() if one.response_id is not None and not _is_unanswered(one)
    }
    answered: list[InferenceCall] = []
    for call in calls:
        answer = fetched.pop(call.response_id, None) if _is_unanswered(call) else None
        answered.append(call if answer is None else _with_answer(call, answer))
    return answered


def _is_unanswered(call: InferenceCall) -> bool:
    """Whether nothing is known of an answer, or only that it is empty."""
    messages = [choice.message for choice in call.choices or () if choice.token_ids is None]
    is_known = call.failed or len(messages) < len(call.choices or ())
    return not is_known and all(message.says_nothing for message in messages)


def _with_answer(call: InferenceCall, fetched: InferenceCall) -> InferenceCall:
    kept = [gap for gap in call.gaps if not gap.field.startswith("answer")]
    added = [gap for gap in fetched.gaps if gap.field.startswith("answer") or gap.kind == "compacted"]
    return msgspec.structs.replace(
        call,
        choices=fetched.choices,
        answer_known=fetched.answer_known,
        usage=call.usage or fetched.usage,
        tools=fetched.tools if call.tools is None else call.tools,
        gaps=tuple(dict.fromkeys((*kept, *added))),
    )


def _in_context(call: InferenceCall, spans: Sequence[Span], context: _TreeContext) -> InferenceCall:
    """Add what the call's spans and their ancestors say: agent, step, environment state, and what the call is for."""
    outermost = spans[0]
    ancestors = context.ancestry.context_including(outermost.key)
    if call.choices and not (call.has_answer or call.failed):
        call = _failed_with_agent(call, outermost, context)
    agent, step, untrained = ancestors.agent, ancestors.step, ancestors.untrained
    if ancestors.content is not None:
        call = with_agent_content(call, outermost, ancestors.content)
    if ancestors.conversation is not None:
        call = with_agent_conversation(call, ancestors.conversation)
    if len(spans) > 1:
        agent = next(filter(None, map(agent_name, spans)), agent)
        marks = (context.ancestry.context_including(span.key).untrained for span in spans)
        untrained = next(filter(None, marks), None)
    if step is not None and step is not outermost:
        call = context.steps.add_to(call, step)
    if agent is None and step is None and untrained is None:
        return call
    index = None if step is None else step_index(step)
    return msgspec.structs.replace(call, agent=agent, step=index, marked_untrained=untrained)


def _failed_with_agent(call: InferenceCall, span: Span, context: _TreeContext) -> InferenceCall:
    """The call, which has no answer, as failed if its agent failed with it: pydantic-ai calls refused streams fine."""
    agent = context.tree.parent(span)
    if agent is None or context.roles[agent.key] != "agent":
        return call
    error_type, error = failure_of(agent)
    starts = context.tree.starts
    if (error_type is None and error is None) or any(
        starts[key] > starts[span.key] for key in context.tree.children[agent.key]
    ):
        return call
    return msgspec.structs.replace(call, choices=None, error_type=error_type, error=error, failure=failure_kind(agent))


def step_index(span: Span) -> int | None:
    """The index a step span carries, None when it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))


class StepData:
    """The data of the steps of one tree. Each step is read once."""

    def __init__(self) -> None:
        self._data: dict[SpanKey, tuple[dict[str, Value], dict[str, Value]]] = {}

    def add_to(self, call: InferenceCall, step: Span) -> InferenceCall:
        """The call with what its step says."""
        if step.key not in self._data:
            self._data[step.key] = span_env_state(step), span_extra(step)
        state, extra = self._data[step.key]
        if not state and not extra:  # as most steps
            return call
        return msgspec.structs.replace(
            call, env_state={**deepcopy(state), **call.env_state}, extra={**deepcopy(extra), **call.extra}
        )


def continue_responses(calls: Sequence[InferenceCall], limit: int) -> Sequence[InferenceCall]:
    """Give calls with a `previous_response_id` their prompts; one that cannot be rebuilt is unknown and has a gap."""
    if all(call.previous_response_id is None for call in calls):
        return calls
    responses: dict[str, InferenceCall] = {}
    continued: list[InferenceCall] = []
    for call in calls:
        if call.previous_response_id is not None:
            earlier = responses.get(call.previous_response_id)
            prompt = _continued(earlier, call)
            if prompt is not None and len(prompt) > limit:
                prompt = None
            limit -= len(prompt or ())
            call = _with_prompt(call, earlier, prompt)  # noqa: PLW2901 # same call
        if call.response_id is not None:
            responses[call.response_id] = call
        continued.append(call)
    return continued


def _with_prompt(
    call: InferenceCall, earlier: InferenceCall | None, prompt: tuple[Message, ...] | None
) -> InferenceCall:
    """The call with its prompt, and with the gaps of what that continues."""
    gaps = dict.fromkeys(call.gaps)
    if prompt is None or earlier is None:
        gaps[Gap(kind="history on the server", field="prompt", evidence=f"{call.previous_response_id}")] = None
    else:
        for gap in earlier.gaps:
            if gap.field in ("prompt", "call", "answer", "answer[0]") and gap.kind != "contradicted":
                gaps[msgspec.structs.replace(gap, field="prompt")] = None
    return msgspec.structs.replace(call, input_messages=prompt, gaps=tuple(gaps))


def _continued(earlier: InferenceCall | None, call: InferenceCall) -> tuple[Message, ...] | None:
    """Rebuild a prompt: new instructions, the earlier prompt without its own, its sampled message, the new input.

    OpenAI Responses API: "instructions from the previous response are not carried over". Frameworks record all that
    was said, and send only the end of it: where the history is there already, the prompt stays.
    """
    if earlier is None or earlier.input_messages is None or not earlier.choices or call.input_messages is None:
        return None
    instructions, added = _split_instructions(call)
    _, history = _split_instructions(earlier)
    was_answered = len(added) > len(history) and added[len(history)].role == "assistant"
    if was_answered and added[: len(history)] == history and call.prompt_known != "verbatim body":
        return call.input_messages
    return (*instructions, *history, earlier.choices[0].message, *added)


def _split_instructions(call: InferenceCall) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a prompt, and what is behind them. A system message among the input items is none."""
    prompt = call.input_messages or ()
    is_first = bool(prompt) and prompt[0].role == "system" and call.has_instructions is not False
    return (prompt[:1], prompt[1:]) if is_first else ((), prompt)


Rule: TypeAlias = Callable[[DuplicateGroups], None]


class DeduplicatedCall(NamedTuple):
    """A call and its spans, the outermost recording first, the wrappers last."""

    call: InferenceCall
    spans: Sequence[Span]


def find_calls(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> list[DeduplicatedCall]:
    """Find the calls that the inference spans of a rollout describe; both are in the order of their start."""
    if len(parsed) == 1 or _is_each_one_call(parsed, tree, ancestry):
        return [DeduplicatedCall(call, (tree.spans[key],)) for key, call in parsed.items()]
    groups = DuplicateGroups(read_recordings(parsed, tree, ancestry), tree)
    for rule in RULES:
        rule(groups)
    mark_contradicting(groups)
    calls = [DeduplicatedCall(group.call, group.spans) for group in groups]
    return sorted(calls, key=lambda call: tree.order(call.spans[0]))


def _is_each_one_call(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> bool:
    """Whether no two recordings can be of one call, as in most rollouts.

    One instrumentor made all of them, none inside another, and no two have one response id.
    """
    recorders = {recorder_of(tree.spans[key]) for key in parsed}
    if len(recorders) > 1 or any(ancestry.context_above(key).call is not None for key in parsed):
        return False
    response_ids = [call.response_id for call in parsed.values() if call.response_id is not None]
    return len(set(response_ids)) == len(response_ids)


def mark_contradicting(groups: DuplicateGroups) -> None:
    """Mark two nested recordings of one request that contradict each other, so that neither is trained.

    Where only one of them knows token ids, these are the server's own, and texts say nothing against them.

    They are of one request by the response's id, or by the prompt where no tool or agent runs between them.
    """
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is None:
            continue
        first, second = groups.of(outer), groups.of(inner)
        is_joined = first is second or not first.recorders.isdisjoint(second.recorders)
        if is_joined or not (has_same_id(outer.call, inner.call) or _has_same_prompt(outer, inner)):
            continue
        if contradicts(first.call, second.call):
            field = "call" if _has_ids(first.call) and _has_ids(second.call) else "messages"
            for group in (first, second):
                gap = Gap(kind="contradicted", field=field, evidence="another recording of the call")
                group.merged = msgspec.structs.replace(group.call, gaps=(*group.call.gaps, gap))


def _has_ids(call: InferenceCall) -> bool:
    return any(choice.token_ids is not None for choice in call.choices or ())


def _has_same_prompt(outer: CallRecording, inner: CallRecording) -> bool:
    """Whether both know the prompt, nothing shows two requests, and the outer one passed it on itself."""
    one, other = outer.call, inner.call
    if outer.boundary_depth != inner.boundary_depth or ids_differ(one, other) or models_differ(one, other):
        return False
    return bool(one.input_messages and other.input_messages) and not prompts_differ(one, other)


def attach_wrapper_methods(groups: DuplicateGroups) -> None:
    """Attach each span of a method around calls of its instrumentor to the last of these calls (LlamaIndex)."""
    last_calls: dict[CallRecording, CallRecording] = {}
    for inner in groups.recordings:
        outer = inner.outer
        if outer is None or outer.span.scope.name != inner.span.scope.name:
            continue
        if is_wrapper_method(outer.span, outer.call) and not models_differ(outer.call, inner.call):
            last_calls[outer] = inner
    for method, call in reversed(last_calls.items()):  # the inner ones first: a method may be around a method
        groups.attach(method, groups.of(call))


def attach_request_only_spans(groups: DuplicateGroups) -> None:
    """Attach a span that has only the request to the call around it that has the response.

    An instrumentor may make one span when a request is sent and a second one when the answer has come (Logfire).
    """
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is None or outer.recorder == inner.recorder or outer.call.response_id is None:
            continue
        if is_request_only(inner.span, inner.call) and is_same_request(outer.call, inner.call):
            groups.attach(inner, groups.of(outer))


def attach_requests_in_one(groups: DuplicateGroups) -> None:
    """Attach a recording of several choices to the last of the requests below it that sampled one of them each.

    A client may ask for n choices by n requests. Each is a call, and what the outer recording has is in them.
    """
    for (outer, _), inners in _recordings_below(groups).items():
        requests = [inner for inner in inners if not inner.call.failed and not prompts_differ(outer.call, inner.call)]
        if len(requests) > 1 and have_same_choices(outer.call, [request.call for request in requests]):
            rest = msgspec.structs.replace(outer.call, choices=None, usage=None, response_id=None, parameters={})
            groups.attach(
                msgspec.structs.replace(outer, call=rest), groups.of(max(requests, key=lambda request: request.start))
            )


def join_nested(groups: DuplicateGroups) -> None:
    """Join a recording with the one below it, by another instrumentor, that it repeats, if it repeats any.

    A call that failed for its caller and completed at a proxy is one failed call: the proxy's other attempts, and what
    lies below them, are attached to it.
    """
    attached: set[CallRecording] = set()
    for (outer, _), inners in _recordings_below(groups).items():  # the outer ones first
        repeated = find_repeated(outer, sorted(inners, key=lambda one: one.start))
        if repeated is None:
            continue
        call = groups.of(outer)
        if outer in attached:
            attempts = [inner for inner in inners if _repeats_request(outer, inner)]
        elif groups.join(call, groups.of(repeated)) and outer.call.failed and not repeated.call.failed:
            attempts = [inner for inner in inners if inner is not repeated and _repeats_request(outer, inner)]
        else:
            continue
        for attempt in attempts:
            groups.attach(attempt, call)
        attached.update(attempts)


def _recordings_below(groups: DuplicateGroups) -> dict[tuple[CallRecording, str], list[CallRecording]]:
    """The recordings right below another one, by that one and their instrumentor."""
    below: dict[tuple[CallRecording, str], list[CallRecording]] = {}
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is not None:
            below.setdefault((outer, inner.span.scope.name), []).append(inner)
    return below


def find_repeated(outer: CallRecording, inners: Sequence[CallRecording]) -> CallRecording | None:
    """Find which of the recordings below it, ordered by their start, the outer recording repeats.

    With the same request, any of them may be the one. With the same answer but another prompt (a framework may record
    the prompt before it formats it), only the first that was answered may be, and no tool or agent may lie between.
    Of several (a router tried again), the outer one repeats that with its answer, else the last that did not fail.
    """
    repeated: list[CallRecording] = []
    is_first_answer = True
    for inner in inners:
        is_passed_on = inner.boundary_depth == outer.boundary_depth
        is_same_first = is_first_answer and is_passed_on and outer.recorder != inner.recorder
        if _repeats_request(outer, inner) or (is_same_first and is_same_answer(outer.call, inner.call)):
            repeated.append(inner)
        is_first_answer = is_first_answer and inner.call.choices is None
    if len(repeated) < 2:
        return next(iter(repeated), None)
    completed = [inner for inner in repeated if not inner.call.failed]
    answered = [inner for inner in completed if have_same_answer(outer.call, inner.call)]
    return (answered or completed or repeated)[-1]


def _repeats_request(outer: CallRecording, inner: CallRecording) -> bool:
    return outer.recorder != inner.recorder and is_same_request(outer.call, inner.call)


def is_same_request(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings are of one request, by the response's id or else by the prompt."""
    return may_be_one(outer, inner) and (has_same_id(outer, inner) or not prompts_differ(outer, inner))


def is_same_answer(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings have the same answer and nothing in their token counts differs."""
    return have_same_answer(outer, inner) and may_be_one(outer, inner) and not usage_differs(outer, inner)


def join_split_streams(groups: DuplicateGroups) -> None:
    """Join each request without an answer with the span that has the answer of its stream."""
    requests = LatestOpen()
    for recording in sorted(groups.recordings, key=lambda one: one.start):
        beside = recording.span.scope.name, recording.span.parent_span_id
        if is_request_only(recording.span, recording.call):
            requests.add(recording, beside)
        else:
            requests.take(recording, beside, partial(_join_answer, groups, recording))


def _join_answer(groups: DuplicateGroups, answer: CallRecording, request: CallRecording) -> bool:
    is_answer = answer.call.choices is not None and _repeats_request(request, answer)
    return is_answer and groups.join(groups.of(request), groups.of(answer))


RULES: Final[tuple[Rule, ...]] = (
    attach_doubles,
    attach_wrapper_methods,
    attach_request_only_spans,
    attach_requests_in_one,
    join_split_streams,
    join_nested,
    join_one_response,
    join_unsurrounded,
    join_enclosed,
    join_unanswered,
    join_failures,
    join_late_streams,
)
"""The rules that join recordings, the surest first; each works with the groups that those before it left."""
