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
from art_otel.conventions import (
    Role,
    agent_name,
    integer,
    parse_call,
    retried_tool_call,
    with_agent_instructions,
    with_retried_tools,
)
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry
from art_otel.trajectories.calls.continued_responses import continue_responses
from art_otel.trajectories.calls.duplicates import find_calls
from art_otel.trajectories.calls.step_data import StepData
from art_otel.trajectories.limits import MAX_CONTINUED_MESSAGES
from art_otel.trajectories.rollouts import RolloutSpans


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a rollout by start.

    `call_of` leads from every inference span to its call's span id.
    """

    calls: tuple[InferenceCall, ...]
    call_of: Mapping[SpanKey, str]


class _TreeContext(NamedTuple):
    """A tree with its roles, log records, ancestry and step data."""

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
    """Parse the inference spans of each rollout of a tree and merge those that describe one request."""
    roots = {rollout.root.key for rollout in rollouts if rollout.root is not None}
    context = _TreeContext(tree=tree, roles=roles, logs=logs, ancestry=Ancestry(tree, roles, roots), steps=StepData())
    return {rollout: _record(rollout, context) for rollout in rollouts}


def _record(rollout: RolloutSpans, context: _TreeContext) -> RecordedCalls:
    tree = context.tree
    inference = sorted([(tree.starts[key], key) for key in rollout.keys if context.roles[key] == "inference"])
    parsed = {key: parse_call(tree.spans[key], context.logs.get(key, ())) for _, key in inference}
    calls: list[InferenceCall] = []
    call_of: dict[SpanKey, str] = {}
    tools = [tree.spans[key] for key in rollout.keys if context.roles[key] == "tool"]
    retried = {call_id for span in tools if (call_id := retried_tool_call(span)) is not None}
    for call, spans in find_calls(parsed, tree, context.ancestry):
        in_context = _in_context(call, spans, context)
        calls.append(with_retried_tools(in_context, spans[0], retried) if retried else in_context)
        for span in spans:
            call_of[span.key] = call.span_id
    return RecordedCalls(calls=tuple(continue_responses(calls, MAX_CONTINUED_MESSAGES)), call_of=call_of)


def _in_context(call: InferenceCall, spans: Sequence[Span], context: _TreeContext) -> InferenceCall:
    """Add what the call's spans and their ancestors say: agent, step, environment state."""
    outermost = spans[0]
    ancestors = context.ancestry.context_including(outermost.key)
    agent, step = ancestors.agent, ancestors.step
    if ancestors.instructions is not None:
        call = with_agent_instructions(call, outermost, ancestors.instructions)
    if len(spans) > 1:
        agent = next(filter(None, map(agent_name, spans)), agent)
    if step is not None and step is not outermost:
        call = context.steps.add_to(call, step)
    if agent is None and step is None:
        return call
    return msgspec.structs.replace(call, agent=agent, step=None if step is None else step_index(step))


def step_index(span: Span) -> int | None:
    """The index a step span carries, None when it is no whole number."""
    return integer(span.attributes.get(attributes.STEP_INDEX))
