"""Row: a trajectory as it is stored, one value a column.

Invariant: `restore_trajectory(store_trajectory(t)) == t` for every valid trajectory, but for metrics that are NaN or
infinite: JSON has no such numbers, and ART's reader refuses a file whose metrics hold null.

Rows are built a column at a time, so the stored records take their fields by position, in the order of the schema.
They hold no cycles, so the garbage collector need not follow them (`gc=False`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import msgspec

from art_otel.calls import Choice, InferenceCall
from art_otel.store.art import ArtMessage, art_messages, art_metadata
from art_otel.store.group_index import group_index
from art_otel.store.json_text import json_text, list_of, object_of, object_text
from art_otel.store.stored_calls import SharedByCalls, StoredCall, restore_call, store_calls
from art_otel.store.stored_tools import StoredToolExecution, restore_tool_calls, store_tool_calls
from art_otel.store.stored_turns import StoredTurn, restore_choices, restore_turns, store_turns
from art_otel.trajectories import PolicyVersions, RebuiltPrompt, Reward, Status, Trajectory, rebuild_prompts


class IncompleteReason(msgspec.Struct, frozen=True, gc=False):
    """A reason why the trajectory is incomplete, and how often it holds."""

    reason: str
    count: int


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row. ART's columns come first."""

    group_index: int
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
    revision: int
    error: str | None
    complete: bool
    incomplete_reasons: tuple[IncompleteReason, ...]
    started_at: int | None
    ended_at: int | None
    rewards: tuple[Reward, ...]
    nested_metadata: str | None
    toolsets: tuple[str, ...]
    objects: tuple[str, ...]
    calls: tuple[StoredCall, ...]
    turns: tuple[StoredTurn, ...]
    tool_calls: tuple[StoredToolExecution, ...]


def store_trajectory(trajectory: Trajectory) -> Row:
    """The row of a trajectory. Raises what msgspec does for metadata and the like that are no JSON values."""
    shared = SharedByCalls()
    calls = store_calls(trajectory.calls, trajectory.prompts, shared)
    metadata, nested = art_metadata(trajectory.metadata)
    reasons = trajectory.incomplete_reasons.items()
    return Row(  # by position, in the order of its fields: by name takes five times as long
        group_index(trajectory),
        None,  # what ART says of a group
        None,
        None,
        trajectory.reward,
        object_text(_finite(trajectory.metrics)),
        object_text(metadata),
        json_text(trajectory.tools) if trajectory.tools else None,
        trajectory.logs or None,
        art_messages(trajectory),
        trajectory.rollout_id,
        trajectory.trace_id,
        trajectory.name,
        trajectory.group_id,
        trajectory.attempt,
        trajectory.split,
        trajectory.training_step,
        trajectory.policy_version,
        trajectory.parent_rollout_id,
        trajectory.status,
        trajectory.revision,
        trajectory.error,
        trajectory.complete,
        tuple(IncompleteReason(reason, count) for reason, count in reasons),
        trajectory.started_at,
        trajectory.ended_at,
        trajectory.rewards,
        object_text(nested),
        shared.toolsets.texts,
        shared.objects.texts,
        calls,
        store_turns(trajectory),
        store_tool_calls(trajectory.tool_calls),
    )


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def restore_trajectory(row: Row, *, prompts: bool = True, choices: bool = True) -> Trajectory:
    """The trajectory of a row. Without `prompts` its calls lack their whole prompts, without `choices` their choices.

    Raises ValueError (msgspec's errors are such) for a row that no trajectory has.
    """
    _check(row)
    call_prompts = tuple(call.prompt for call in row.calls)
    turns = restore_turns(row.turns, call_prompts)
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
        revision=row.revision,
        error=row.error,
        started_at=row.started_at,
        ended_at=row.ended_at,
        incomplete_reasons={reason.reason: reason.count for reason in row.incomplete_reasons},
        reward=row.reward,
        rewards=row.rewards,
        metrics={name: value for name, value in object_of(row.metrics).items() if value is not None},
        metadata=object_of(row.metadata) | object_of(row.nested_metadata),
        logs=row.logs or (),
        tools=() if row.tools is None else list_of(row.tools),
        calls=_restore_calls(
            row,
            rebuild_prompts(call_prompts, turns) if prompts else (RebuiltPrompt(),) * len(call_prompts),
            restore_choices(row.turns) if choices else {},
        ),
        prompts=call_prompts,
        turns=turns,
        tool_calls=restore_tool_calls(row.tool_calls),
    )


def _check(row: Row) -> None:
    # The types hold for what we wrote; a file's columns may hold null all the same.
    if row.rollout_id is None or row.trace_id is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ValueError("rollout_id or trace_id is missing")
    if row.revision is None:  # pyright: ignore[reportUnnecessaryComparison] # as above
        raise ValueError("revision is missing")
    if row.status not in get_args(Status):
        raise ValueError(f"{row.status!r} is no status")
    for position, call in enumerate(row.calls):
        if call.prompt is None:  # pyright: ignore[reportUnnecessaryComparison] # as above
            raise ValueError(f"call {position} has no prompt")
    for position, turn in enumerate(row.turns):
        if not 0 <= turn.call < len(row.calls):
            raise ValueError(f"turn {position} is of call {turn.call}, of {len(row.calls)} calls")


def _restore_calls(
    row: Row, prompts: Iterable[RebuiltPrompt], choices: Mapping[int, Sequence[Choice]]
) -> tuple[InferenceCall, ...]:
    return tuple(
        restore_call(call, row.toolsets, row.objects, asked, choices.get(position))
        for position, (call, asked) in enumerate(zip(row.calls, prompts, strict=True))
    )
