"""RecordedCalls: the LLM calls of one rollout, each once, in the order of their start.

Invariant: every inference span of the rollout is described by exactly one call. What several instrumentors recorded
of one request is one call under the outermost span; a call that continues an earlier response by its id has the
prompt that the server saw.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import AGENT_NAME, Role, integer, merge_calls, parse_call
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree
from art_otel.trajectories.candidates import RolloutSpans
from art_otel.trajectories.requests import find_requests
from art_otel.trajectories.resumed import MOST_RESUMED, resume_prompts
from art_otel.trajectories.room import MOST_HELD, MOST_REPEATED, Room, Rooms
from art_otel.trajectories.step_data import StepData
from art_otel.trajectories.surroundings import Surroundings


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start.

    `call_of` leads from every inference span to its call's span id; `unresolved` counts calls that continue a response
    by its id and whose prompt is unknown. `contradicting` are the calls that another recording of theirs contradicts.
    """

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]
    unresolved: int
    contradicting: frozenset[SpanKey] = frozenset()


class _Tree(NamedTuple):
    """A tree, and what is known of all of it. `held` is what its calls may repeat in memory."""

    tree: SpanTree
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    surroundings: Surroundings
    steps: StepData
    held: Room


def record_calls(
    rollouts: Sequence[RolloutSpans],
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
) -> dict[RolloutSpans, RecordedCalls]:
    """Parse the inference spans of each rollout of a tree and unite those that describe one request."""
    own_spans = {rollout.root.key for rollout in rollouts if rollout.root is not None}
    known = _Tree(
        tree=tree,
        roles=roles,
        logs=logs,
        surroundings=Surroundings(tree, roles, own_spans),
        steps=StepData(),
        held=Room(MOST_HELD),
    )
    return {rollout: _record(rollout, known) for rollout in rollouts}


def _record(rollout: RolloutSpans, known: _Tree) -> RecordedCalls:
    spans, starts = known.tree.spans, known.tree.starts
    inference = sorted([(starts[key], key) for key in rollout.keys if known.roles[key] == "inference"])
    parsed = {key: parse_call(spans[key], known.logs.get(key, ())) for _, key in inference}
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    rooms = Rooms(prompts=Room(MOST_RESUMED), steps=Room(MOST_REPEATED), names=Room(MOST_REPEATED), held=known.held)
    requests = find_requests(parsed, known.tree, known.surroundings)
    contradicting: set[SpanKey] = set()
    for group in requests.groups:
        outermost = group[0]
        merged = parsed[outermost] if len(group) == 1 else merge_calls([parsed[key] for key in group])
        calls.append(_in_context(merged, spans[outermost], known, rooms))
        for key in group:
            call_of[key] = merged.span_id
        if not requests.contradicting.isdisjoint(group):
            contradicting.add((merged.trace_id, merged.span_id))
    resumed, unresolved = resume_prompts(calls, rooms)
    return RecordedCalls(
        calls=tuple(resumed), call_of=call_of, unresolved=unresolved, contradicting=frozenset(contradicting)
    )


def _in_context(call: InferenceCall, span: Span, known: _Tree, rooms: Rooms) -> InferenceCall:
    """Add what the spans above the call know: agent, step, environment state."""
    above = known.surroundings.above(span.key)
    step = span if attributes.STEP_INDEX in span.attributes else above.step
    if above.agent is None and step is None:
        return call
    if step is not None and step is not span:
        call = known.steps.add_to(call, step, rooms)
    agent, cut = above.agent, call.cut
    if agent is None:
        agent = call.agent
    elif not rooms.names.take_text(agent):
        agent, cut = call.agent, (*cut, AGENT_NAME)
    return msgspec.structs.replace(call, agent=agent, cut=cut, step=None if step is None else step_index(step))


def step_index(span: Span) -> int | None:
    """The index a step span carries, None when it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))
