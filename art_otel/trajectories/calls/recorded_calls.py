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
from art_otel.trajectories.calls.duplicates.cluster import Cluster
from art_otel.trajectories.calls.step_data import StepData
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
    inference = [key for key in rollout.keys if whole.roles[key] == "inference"]
    parsed = {key: parse_call(tree.spans[key], whole.logs.get(key, ())) for key in inference}
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    for cluster in find_calls(parsed, tree, whole.ancestry):
        call = _in_context(cluster, whole)
        calls.append(call)
        call_of.update(dict.fromkeys(cluster.keys, call.span_id))
    continued, unresolved = continue_responses(calls)
    return RecordedCalls(calls=tuple(continued), call_of=call_of, unresolved=unresolved)


def _in_context(cluster: Cluster, whole: _Tree) -> InferenceCall:
    """The call with what its spans and those above them say: agent, step, environment state."""
    call, span = cluster.call, cluster.outermost.span
    context = whole.ancestry.upward(span.key)
    agent = next(filter(None, (agent_name(recording.span) for recording in cluster.recordings)), context.agent)
    if agent is None and context.step is None:
        return call
    if context.step is None:
        return msgspec.structs.replace(call, agent=agent)
    if context.step is not span:
        call = whole.steps.add_to(call, context.step)
    return msgspec.structs.replace(call, agent=agent, step=step_index(context.step))


def step_index(span: Span) -> int | None:
    """The index a step span carries, None when it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))
