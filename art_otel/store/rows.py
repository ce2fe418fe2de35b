"""Row: a trajectory as it is stored, one value a column.

Invariant: `restore_trajectory(store_trajectory(t)) == t` for every valid trajectory. What a call's turns already say
(its prompt and its choices) is not stored with the call, a list of tools that several calls had is stored once, and
JSON values are JSON text, because Arrow would merge dicts of different keys.

Rows are built a column at a time, so these records take their fields by position, in the order of the schema.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import msgspec

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, Usage
from art_otel.spans import Value
from art_otel.store.art import ArtMessage, art_messages, art_metadata
from art_otel.store.prompts import Prompt, rebuild_prompts
from art_otel.trajectories.trajectory import Edit, PolicyVersions, Reward, Status, Trajectory, Turn


class IncompleteReason(msgspec.Struct, frozen=True):
    """A reason why the trajectory is incomplete, and how often it holds."""

    reason: str
    count: int


class StoredCall(msgspec.Struct, frozen=True):
    """An InferenceCall without what its turns say. `toolset` is a position in the row's toolsets."""

    trace_id: str
    span_id: str
    operation_name: str
    start_ns: int
    end_ns: int | None
    response_id: str | None
    previous_response_id: str | None
    agent: str | None
    step: int | None
    provider: str | None
    request_model: str | None
    response_model: str | None
    parameters: str | None
    toolset: int | None
    usage: Usage | None
    policy_version: str | None
    error_type: str | None
    error: str | None
    stream: bool | None
    dropped_attributes: int
    cut: tuple[str, ...]
    conventions: tuple[str, ...]
    env_state: str | None
    extra: str | None


class StoredTurn(msgspec.Struct, frozen=True):
    """A Turn and the index its choice had.

    `edits` is None where messages, context_token_ids and edits are those of the call's first turn (the later choices
    of n > 1); these two are then None as well.
    """

    call: int
    choice: int | None
    choice_index: int | None
    parent: int | None
    drifted_from: int | None
    edits: tuple[Edit, ...] | None
    messages: tuple[Message, ...] | None
    context_token_ids: TokenIds | None
    message: Message | None
    finish_reason: str | None
    token_ids: TokenIds | None
    logprobs: Logprobs | None


class Row(msgspec.Struct, frozen=True):
    """A row but for its group_index, which only the order of all rows gives. ART's columns come first."""

    group_metadata: str | None
    group_metrics: str | None
    group_logs: tuple[str, ...] | None
    reward: float | None
    metrics: str | None
    metadata: str | None
    tools: str | None
    logs: tuple[str, ...] | None
    messages: tuple[ArtMessage, ...] | None
    rollout_id: str
    trace_id: str
    name: str | None
    group_id: str | None
    attempt: int | None
    split: str | None
    training_step: int | None
    policy_version: PolicyVersions | None
    parent_rollout_id: str | None
    status: Status
    error: str | None
    complete: bool
    incomplete_reasons: tuple[IncompleteReason, ...]
    started_at: int | None
    ended_at: int | None
    rewards: tuple[Reward, ...]
    nested_metadata: str | None
    toolsets: tuple[str, ...]
    calls: tuple[StoredCall, ...]
    turns: tuple[StoredTurn, ...]


def store_trajectory(trajectory: Trajectory) -> Row:
    """The row of a trajectory. Raises what msgspec does for metadata and the like that are no JSON values."""
    toolsets: dict[str, int] = {}
    calls = tuple(_store_call(call, toolsets) for call in trajectory.calls)
    metadata, nested = art_metadata(trajectory.metadata)
    reasons = trajectory.incomplete_reasons.items()
    return Row(
        group_metadata=None,
        group_metrics=None,
        group_logs=None,
        reward=trajectory.reward,
        metrics=_object_text(trajectory.metrics),
        metadata=_object_text(metadata),
        tools=_text(trajectory.tools) if trajectory.tools else None,
        logs=trajectory.logs or None,
        messages=art_messages(trajectory),
        rollout_id=trajectory.rollout_id,
        trace_id=trajectory.trace_id,
        name=trajectory.name,
        group_id=trajectory.group_id,
        attempt=trajectory.attempt,
        split=trajectory.split,
        training_step=trajectory.training_step,
        policy_version=trajectory.policy_version,
        parent_rollout_id=trajectory.parent_rollout_id,
        status=trajectory.status,
        error=trajectory.error,
        complete=trajectory.complete,
        incomplete_reasons=tuple(IncompleteReason(reason, count) for reason, count in reasons),
        started_at=trajectory.started_at,
        ended_at=trajectory.ended_at,
        rewards=trajectory.rewards,
        nested_metadata=_object_text(nested),
        toolsets=tuple(toolsets),
        calls=calls,
        turns=_store_turns(trajectory),
    )


def restore_trajectory(row: Row, *, prompts: bool = True) -> Trajectory:
    """The trajectory of a row. Without `prompts` its calls have no prompts and choices, which only turns then tell.

    Raises ValueError (msgspec's errors are such) for a row that no trajectory has.
    """
    _check(row)
    turns = _restore_turns(row.turns)
    return Trajectory(
        rollout_id=row.rollout_id,
        trace_id=row.trace_id,
        name=row.name,
        group_id=row.group_id,
        attempt=row.attempt,
        split=row.split,
        training_step=row.training_step,
        policy_version=row.policy_version,
        parent_rollout_id=row.parent_rollout_id,
        status=row.status,
        error=row.error,
        started_at=row.started_at,
        ended_at=row.ended_at,
        incomplete_reasons={reason.reason: reason.count for reason in row.incomplete_reasons},
        reward=row.reward,
        rewards=row.rewards,
        metrics=_object(row.metrics),
        metadata=_object(row.metadata) | _object(row.nested_metadata),
        logs=row.logs or (),
        tools=() if row.tools is None else tuple(msgspec.json.decode(row.tools, type=list[Value])),
        calls=_restore_calls(row, turns, prompts=prompts),
        turns=turns,
    )


def _check(row: Row) -> None:
    if row.rollout_id is None or row.trace_id is None or row.status not in get_args(Status):  # type: ignore[redundant-expr]
        raise ValueError("rollout_id, trace_id or status is missing or unknown")
    for position, turn in enumerate(row.turns):
        if not 0 <= turn.call < len(row.calls):
            raise ValueError(f"turn {position} is of call {turn.call}, of {len(row.calls)} calls")


def _store_call(call: InferenceCall, toolsets: dict[str, int]) -> StoredCall:
    return StoredCall(
        trace_id=call.trace_id,
        span_id=call.span_id,
        operation_name=call.operation_name,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        response_id=call.response_id,
        previous_response_id=call.previous_response_id,
        agent=call.agent,
        step=call.step,
        provider=call.provider,
        request_model=call.request_model,
        response_model=call.response_model,
        parameters=_object_text(call.parameters),
        toolset=None if call.tools is None else toolsets.setdefault(_text(call.tools), len(toolsets)),
        usage=call.usage,
        policy_version=call.policy_version,
        error_type=call.error_type,
        error=call.error,
        stream=call.stream,
        dropped_attributes=call.dropped_attributes,
        cut=call.cut,
        conventions=call.conventions,
        env_state=_object_text(call.env_state),
        extra=_object_text(call.extra),
    )


def _restore_calls(row: Row, turns: Sequence[Turn], *, prompts: bool) -> tuple[InferenceCall, ...]:
    toolsets = [tuple(msgspec.json.decode(tools, type=list[Value])) for tools in row.toolsets]
    asked = rebuild_prompts(turns) if prompts else {}
    sampled = _choices(row.turns, turns) if prompts else {}
    return tuple(
        InferenceCall(
            trace_id=call.trace_id,
            span_id=call.span_id,
            operation_name=call.operation_name,
            start_ns=call.start_ns,
            end_ns=call.end_ns,
            response_id=call.response_id,
            previous_response_id=call.previous_response_id,
            agent=call.agent,
            step=call.step,
            provider=call.provider,
            request_model=call.request_model,
            response_model=call.response_model,
            parameters=_object(call.parameters),
            tools=None if call.toolset is None else toolsets[call.toolset],
            input_messages=asked.get(position, Prompt()).messages,
            choices=tuple(sampled[position]) if position in sampled else None,
            prompt_token_ids=asked.get(position, Prompt()).token_ids,
            usage=call.usage,
            policy_version=call.policy_version,
            error_type=call.error_type,
            error=call.error,
            stream=call.stream,
            dropped_attributes=call.dropped_attributes,
            cut=call.cut,
            conventions=call.conventions,
            env_state=_object(call.env_state),
            extra=_object(call.extra),
        )
        for position, call in enumerate(row.calls)
    )


def _store_turns(trajectory: Trajectory) -> tuple[StoredTurn, ...]:
    first_turns: dict[int, Turn] = {}
    return tuple(
        _store_turn(turn, first_turns.setdefault(turn.call, turn), _choice_index(turn, trajectory.calls))
        for turn in trajectory.turns
    )


def _store_turn(turn: Turn, first: Turn, choice_index: int | None) -> StoredTurn:
    repeated = turn is not first and (
        (turn.messages, turn.context_token_ids, turn.edits) == (first.messages, first.context_token_ids, first.edits)
    )
    return StoredTurn(
        call=turn.call,
        choice=turn.choice,
        choice_index=choice_index,
        parent=turn.parent,
        drifted_from=turn.drifted_from,
        edits=None if repeated else turn.edits,
        messages=None if repeated else turn.messages,
        context_token_ids=None if repeated else turn.context_token_ids,
        message=turn.message,
        finish_reason=turn.finish_reason,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
    )


def _restore_turns(stored: Iterable[StoredTurn]) -> tuple[Turn, ...]:
    first_turns: dict[int, StoredTurn] = {}
    return tuple(_restore_turn(turn, first_turns.setdefault(turn.call, turn)) for turn in stored)


def _restore_turn(turn: StoredTurn, first: StoredTurn) -> Turn:
    told = first if turn.edits is None else turn
    return Turn(
        call=turn.call,
        choice=turn.choice,
        parent=turn.parent,
        drifted_from=turn.drifted_from,
        edits=told.edits or (),
        messages=told.messages,
        context_token_ids=told.context_token_ids,
        message=turn.message,
        finish_reason=turn.finish_reason,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
    )


def _choice_index(turn: Turn, calls: Sequence[InferenceCall]) -> int | None:
    """The index the choice itself had: its position, but for recordings that miss choices."""
    choices = calls[turn.call].choices
    return turn.choice if turn.choice is None or choices is None else choices[turn.choice].index


def _choices(stored: Sequence[StoredTurn], turns: Sequence[Turn]) -> dict[int, list[Choice]]:
    """The choices of each call that has any, in their order."""
    choices: dict[int, list[Choice]] = {}
    indexes = [turn.choice_index for turn in stored]
    sampled = [(turn, index) for turn, index in zip(turns, indexes, strict=True) if turn.message is not None]
    for turn, index in sorted(sampled, key=lambda each: each[0].choice or 0):
        if turn.message is None or index is None:
            raise ValueError(f"a message of call {turn.call} that is no choice")
        choices.setdefault(turn.call, []).append(
            Choice(
                index=index,
                message=turn.message,
                finish_reason=turn.finish_reason,
                token_ids=turn.token_ids,
                logprobs=turn.logprobs,
            )
        )
    return choices


def _text(value: Value) -> str:
    return msgspec.json.encode(value).decode()


def _object_text(value: Mapping[str, Value]) -> str | None:
    return _text(dict(value)) if value else None


def _object(text: str | None) -> dict[str, Value]:
    return {} if text is None else msgspec.json.decode(text, type=dict[str, Value])
