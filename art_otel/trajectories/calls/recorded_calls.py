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
from art_otel.conventions import Role, agent_name, integer, parse_call
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.continued_responses import continue_responses
from art_otel.trajectories.calls.duplicates import find_calls
from art_otel.trajectories.calls.step_data import StepData
from art_otel.trajectories.limits import MAX_CONTINUED_MESSAGES
from art_otel.trajectories.rollouts.index import RolloutSpans


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start.

    `call_of` leads from every inference span to its call's span id; `unresolved` counts calls that continue a response
    by its id and whose prompt is unknown.
    """

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]
    unresolved: int


class _Tree(NamedTuple):
    """A tree, and what is known of all of it."""

    tree: SpanTree
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    ancestry: Ancestry
    steps: StepData


def record_calls(
    rollouts: Sequence[RolloutSpans],
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
) -> dict[RolloutSpans, RecordedCalls]:
    """Parse the inference spans of each rollout of a tree and unite those that describe one request."""
    own_spans = {rollout.root.key for rollout in rollouts if rollout.root is not None}
    whole = _Tree(tree=tree, roles=roles, logs=logs, ancestry=Ancestry(tree, roles, own_spans), steps=StepData())
    return {rollout: _record(rollout, whole) for rollout in rollouts}


def _record(rollout: RolloutSpans, whole: _Tree) -> RecordedCalls:
    tree = whole.tree
    inference = sorted([(tree.starts[key], key) for key in rollout.keys if whole.roles[key] == "inference"])
    parsed = {key: parse_call(tree.spans[key], whole.logs.get(key, ())) for _, key in inference}
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    for call, spans in find_calls(parsed, tree, whole.ancestry):
        calls.append(_in_context(call, spans, whole))
        for span in spans:
            call_of[span.key] = call.span_id
    continued, unresolved = continue_responses(calls, MAX_CONTINUED_MESSAGES)
    return RecordedCalls(calls=tuple(continued), call_of=call_of, unresolved=unresolved)


def _in_context(call: InferenceCall, spans: Sequence[Span], whole: _Tree) -> InferenceCall:
    """The call with what its spans and those above them say: agent, step, environment state."""
    outermost = spans[0]
    context = whole.ancestry.upward(outermost.key)
    agent, step = context.agent, context.step
    if len(spans) > 1:
        agent = next(filter(None, map(agent_name, spans)), agent)
    if step is not None and step is not outermost:
        call = whole.steps.add_to(call, step)
    if agent is None and step is None:
        return call
    return msgspec.structs.replace(call, agent=agent, step=None if step is None else step_index(step))


def step_index(span: Span) -> int | None:
    """The index a step span carries, None when it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))
