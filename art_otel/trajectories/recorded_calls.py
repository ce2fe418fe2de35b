"""RecordedCalls: the LLM calls of one rollout, each once, in the order of their start.

Invariant: every inference span of the rollout is described by exactly one call. What several instrumentors recorded
of one request is one call under the outermost span; a call that continues an earlier response by its id has the
prompt that the server saw.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall, Message
from art_otel.conventions import Role, agent_name, env_state_of, extra_of, integer, merge_calls, parse_call, same_call
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree
from art_otel.trajectories.rollouts import RolloutSpans


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start.

    `call_of` leads from every inference span to its call's span id; `unresolved` counts calls that continue a response
    nobody recorded.
    """

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]
    unresolved: int


def record_calls(
    rollout: RolloutSpans, tree: SpanTree, roles: Mapping[SpanKey, Role], logs: Mapping[SpanKey, Sequence[LogRecord]]
) -> RecordedCalls:
    """Parse the inference spans of a rollout and unite those that describe one request."""
    spans, starts = tree.spans, tree.starts
    inference = sorted([(starts[key], key) for key in rollout.keys if roles[key] == "inference"])
    parsed = {key: parse_call(spans[key], logs.get(key, ())) for _, key in inference}
    apart = _stand_apart(parsed, tree)
    groups = [[key] for key in parsed] if apart else _unite([spans[key] for key in parsed], parsed, tree)
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    above: dict[SpanKey, _Above] = {}
    for group in groups:
        outermost = group[0]
        merged = parsed[outermost] if len(group) == 1 else merge_calls([parsed[key] for key in group])
        calls.append(_in_context(merged, outermost, tree, above))
        for key in group:
            call_of[key] = merged.span_id
    resumed, unresolved = _resume(calls)
    return RecordedCalls(calls=tuple(resumed), call_of=call_of, unresolved=unresolved)


def _stand_apart(parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree) -> bool:
    """Whether no call is below another and no two have one response id, so that each is a request of its own."""
    responses = [call.response_id for call in parsed.values() if call.response_id is not None]
    if len(set(responses)) < len(responses):
        return False
    parents = tree.parents
    outside: set[SpanKey] = set()  # what no call is at or above of
    for key in parsed:
        at = parents.get(key)
        while at is not None and at not in outside:
            if at in parsed:
                return False
            outside.add(at)
            at = parents.get(at)
    return True


def _unite(inference: Sequence[Span], parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree) -> list[list[SpanKey]]:
    """Group the spans of one request, the outermost first; the groups by the start of their outermost."""
    above = {span.key: [outer for outer in tree.ancestors(span) if outer.key in parsed] for span in inference}
    # A span may start in the same nanosecond as its parent, so depth decides who is met first.
    outside_in = sorted(inference, key=lambda span: (len(above[span.key]), tree.order(span)))
    outer_of = _outer_spans(inference, parsed, above)
    group_of: dict[SpanKey, list[Span]] = {}
    by_response: dict[str, list[Span]] = {}
    groups: list[list[Span]] = []
    for span in outside_in:
        response_id = parsed[span.key].response_id
        outer = outer_of.get(span.key)
        twins = by_response.get(response_id or "", [])
        met = outer or next((other for other in twins if _overlap(other, span)), None)
        group = [] if met is None else group_of[met.key]
        if any(member.scope.name == span.scope.name and member.name == span.name for member in group):
            group = []
        if not group:
            groups.append(group)
        group.append(span)
        group_of[span.key] = group
        if response_id is not None:
            by_response.setdefault(response_id, []).append(span)
    groups.sort(key=lambda group: tree.order(group[0]))
    return [[span.key for span in group] for group in groups]


def _outer_spans(
    inference: Sequence[Span], parsed: Mapping[SpanKey, InferenceCall], above: Mapping[SpanKey, Sequence[Span]]
) -> dict[SpanKey, Span]:
    """For every span that repeats the request of one above it, that span.

    Of several requests below one span (a router that tried again) it stands for the last that went as it did itself.
    """
    rivals: dict[tuple[SpanKey, str], list[Span]] = {}
    outers: dict[SpanKey, Span] = {}
    for span in inference:
        outer = next(iter(above[span.key]), None)
        if outer is not None and same_call(outer, parsed[outer.key], span, parsed[span.key]):
            outers[span.key] = outer
            rivals.setdefault((outer.key, span.scope.name), []).append(span)
    for (outer_key, _), spans in rivals.items():
        alike = [span for span in spans if parsed[span.key].failed == parsed[outer_key].failed]
        for span in spans:
            if span is not (alike or spans)[-1]:
                del outers[span.key]
    return outers


def _overlap(first: Span, second: Span) -> bool:
    """Whether two instrumentors can have seen one request: different scopes, at the same time."""
    if first.scope.name == second.scope.name or first.end_ns is None:
        return False
    return second.start_ns < first.end_ns


class _Above(NamedTuple):
    """What a span and those above it say of the calls below it: the nearest agent's name and the nearest step."""

    agent: str | None = None
    step: Span | None = None


def _in_context(call: InferenceCall, key: SpanKey, tree: SpanTree, known: dict[SpanKey, _Above]) -> InferenceCall:
    """Add what the spans above the call know: agent, step, environment state. `known` is what they said already."""
    parent, span = tree.parents.get(key), tree.spans[key]
    agent, step = _Above() if parent is None else known.get(parent) or _from(parent, tree, known)
    if attributes.STEP_INDEX in span.attributes:
        step = span
    if agent is None and step is None:
        return call
    state, extra = call.env_state, call.extra
    if step is not None and step is not span:
        state, extra = {**env_state_of(step), **state}, {**extra_of(step), **extra}
    return msgspec.structs.replace(
        call,
        agent=agent if agent is not None else call.agent,
        step=None if step is None else step_index(step),
        env_state=state,
        extra=extra,
    )


def _from(key: SpanKey, tree: SpanTree, known: dict[SpanKey, _Above]) -> _Above:
    """What the span at `key` and those above it say, each asked once."""
    path: list[SpanKey] = []
    at: SpanKey | None = key
    while at is not None and at not in known:
        path.append(at)
        at = tree.parents.get(at)
    above = _Above() if at is None else known[at]
    for step in reversed(path):
        span = tree.spans[step]
        nearer = span if attributes.STEP_INDEX in span.attributes else above.step
        above = known[step] = _Above(agent_name(span) or above.agent, nearer)
    return above


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
