"""Inference calls: the LLM calls of one rollout, each once, in the order of their start.

`record_calls` parses the inference spans of a tree with the log records that belong to them, has `duplicates` find
which are recordings of one request, and adds what the spans around a call say: its agent, its step and the step's data.

Invariant: every inference span of a rollout is described by exactly one call. What several instrumentors recorded of
one request is one call under the outermost span. A call that continues an earlier response by its id has the prompt
that the server saw, whole, or no prompt. A policy version is what the call or its rollout says; that of one call is
never taken for another's.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Final, NamedTuple

import msgspec

from art_otel import attributes
from art_otel.calls import Gap, InferenceCall, Message
from art_otel.conventions import (
    Role,
    agent_name,
    integer,
    parse_call,
    retried_tool_call,
    span_env_state,
    span_extra,
    with_agent_conversation,
    with_agent_instructions,
    with_retried_tools,
)
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree, Value
from art_otel.trajectories.duplicates import find_calls
from art_otel.trajectories.model import PolicyVersions, Trajectory
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
    """A tree with its roles, log records, ancestry and step data."""

    tree: SpanTree
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    ancestry: Ancestry
    steps: "StepData"


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
    if ancestors.conversation is not None:
        call = with_agent_conversation(call, ancestors.conversation)
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

    OpenAI Responses API: "instructions from the previous response are not carried over".
    """
    if earlier is None or earlier.input_messages is None or not earlier.choices or call.input_messages is None:
        return None
    instructions, added = _split_instructions(call)
    _, history = _split_instructions(earlier)
    return (*instructions, *history, earlier.choices[0].message, *added)


def _split_instructions(call: InferenceCall) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a prompt, and what is behind them. A system message among the input items is none."""
    prompt = call.input_messages or ()
    is_first = bool(prompt) and prompt[0].role == "system" and call.has_instructions is not False
    return (prompt[:1], prompt[1:]) if is_first else ((), prompt)


def with_versions(calls: Iterable[InferenceCall], of_rollout: str | None) -> tuple[InferenceCall, ...]:
    """The calls, those that say no version with what their rollout says."""
    if of_rollout is None:
        return tuple(calls)
    return tuple(
        call if call.policy_version is not None else msgspec.structs.replace(call, policy_version=of_rollout)
        for call in calls
    )


def first_and_last(calls: Iterable[InferenceCall], of_rollout: str | None) -> PolicyVersions | None:
    """The versions of the first and last call that has one; what the rollout says where none has."""
    versions = [call.policy_version for call in calls if call.policy_version is not None]
    if not versions and of_rollout is not None:
        versions = [of_rollout]
    return PolicyVersions(first=versions[0], last=versions[-1]) if versions else None


def version_of(trajectory: Trajectory, call: InferenceCall) -> str | None:
    """The version that a call of a trajectory was sampled by, None where it is unknown.

    Where no call has a version, it is the rollout's first. If some call has a version, calls without one stay unknown.
    """
    if call.policy_version is not None or trajectory.policy_version is None or _says_any(trajectory.calls):
        return call.policy_version
    return trajectory.policy_version.first


def versions_in(trajectory: Trajectory) -> set[str | None]:
    """The versions of the rollout and of every call; with None where one is unknown.

    A call that failed before anything was sampled needs none.
    """
    versions = trajectory.policy_version
    of_rollout: set[str | None] = set() if versions is None else {versions.first, versions.last}
    if of_rollout and not _says_any(trajectory.calls):
        return of_rollout
    sampling = {turn.call for turn in trajectory.turns}
    of_calls = {
        call.policy_version
        for position, call in enumerate(trajectory.calls)
        if call.policy_version is not None or position in sampling or not call.failed
    }
    return of_rollout | of_calls


def first_and_last_known(trajectory: Trajectory) -> PolicyVersions | None:
    """The rollout's versions; None where that of a call is unknown, which may be any."""
    return None if None in versions_in(trajectory) else trajectory.policy_version


def _says_any(calls: Sequence[InferenceCall]) -> bool:
    return any(call.policy_version is not None for call in calls)
