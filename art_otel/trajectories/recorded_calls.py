"""RecordedCalls: the LLM calls of one rollout, each once, in the order of their start.

Invariant: every inference span of the rollout is described by exactly one call. What several instrumentors recorded
of one request is one call under the outermost span; a call that continues an earlier response by its id has the
prompt that the server saw.
"""

from collections.abc import Mapping, Sequence

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall, Message
from art_otel.conventions import Role, integer, merge_calls, parse_call
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree, Value
from art_otel.trajectories.candidates import RolloutSpans
from art_otel.trajectories.requests import find_requests
from art_otel.trajectories.surroundings import Surroundings


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start.

    `call_of` leads from every inference span to its call's span id; `unresolved` counts calls that continue a response
    nobody recorded.
    """

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]
    unresolved: int


def record_calls(
    rollouts: Sequence[RolloutSpans],
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
) -> dict[RolloutSpans, RecordedCalls]:
    """Parse the inference spans of each rollout of a tree and unite those that describe one request."""
    own_spans = {rollout.root.key for rollout in rollouts if rollout.root is not None}
    surroundings = Surroundings(tree, roles, own_spans)
    return {rollout: _record(rollout, tree, roles, logs, surroundings) for rollout in rollouts}


def _record(
    rollout: RolloutSpans,
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
    surroundings: Surroundings,
) -> RecordedCalls:
    spans, starts = tree.spans, tree.starts
    inference = sorted([(starts[key], key) for key in rollout.keys if roles[key] == "inference"])
    parsed = {key: parse_call(spans[key], logs.get(key, ())) for _, key in inference}
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    for group in find_requests(parsed, tree, surroundings):
        outermost = group[0]
        merged = parsed[outermost] if len(group) == 1 else merge_calls([parsed[key] for key in group])
        calls.append(_in_context(merged, spans[outermost], surroundings))
        for key in group:
            call_of[key] = merged.span_id
    resumed, unresolved = _resume(calls)
    return RecordedCalls(calls=tuple(resumed), call_of=call_of, unresolved=unresolved)


def _in_context(call: InferenceCall, span: Span, surroundings: Surroundings) -> InferenceCall:
    """Add what the spans above the call know: agent, step, environment state."""
    above = surroundings.above(span.key)
    step = span if attributes.STEP_INDEX in span.attributes else above.step
    if above.agent is None and step is None:
        return call
    state, extra = call.env_state, call.extra
    if step is not None and step is not span:
        said = surroundings.said(step)
        state, extra = _added(said.env_state, state), _added(said.extra, extra)
    return msgspec.structs.replace(
        call,
        agent=above.agent if above.agent is not None else call.agent,
        step=None if step is None else step_index(step),
        env_state=state,
        extra=extra,
    )


def _added(known: Mapping[str, Value], own: Mapping[str, Value]) -> Mapping[str, Value]:
    """What is known and what is a call's own; the calls that have nothing of their own share what is known."""
    return {**known, **own} if own else known


def step_index(span: Span) -> int | None:
    """The index a step span carries, None when it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))


def _resume(calls: Sequence[InferenceCall]) -> tuple[Sequence[InferenceCall], int]:
    """Give calls with a `previous_response_id` the prompt the server put together from the earlier response.

    The earlier prompt without its instructions, its sampled message, then the new input behind its own instructions
    (OpenAI Responses API: "instructions from the previous response are not carried over").
    """
    if all(call.previous_response_id is None for call in calls):
        return calls, 0
    by_response: dict[str, InferenceCall] = {}
    resumed: list[InferenceCall] = []
    unresolved = 0
    for call in calls:
        if call.previous_response_id is not None:
            prompt = _continued(by_response.get(call.previous_response_id), call)
            unresolved += prompt is None
            call = msgspec.structs.replace(call, input_messages=prompt)  # noqa: PLW2901 # same call
        if call.response_id is not None:
            by_response[call.response_id] = call
        resumed.append(call)
    return resumed, unresolved


def _continued(earlier: InferenceCall | None, call: InferenceCall) -> tuple[Message, ...] | None:
    if earlier is None or earlier.input_messages is None or not earlier.choices or call.input_messages is None:
        return None
    own = call.input_messages
    before = earlier.input_messages
    instructions, added = (own[:1], own[1:]) if own and own[0].role == "system" else ((), own)
    history = before[1:] if before and before[0].role == "system" else before
    return (*instructions, *history, earlier.choices[0].message, *added)
