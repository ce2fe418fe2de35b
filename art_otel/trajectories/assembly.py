"""Assembly: the spans of one group become trajectories. The story of this room.

Invariant: the outcome depends on the set of spans only, not on their order, their files or repeated delivery.

A group is everything that may belong together: traces joined by a rollout id or by a reward that links to another.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import Role, role_of
from art_otel.spans import Damage, LogRecord, Span, SpanKey, SpanTree, grow_tree
from art_otel.trajectories.account import Account, count_spans
from art_otel.trajectories.completeness import Evidence, find_incomplete, is_blind
from art_otel.trajectories.joined_logs import join_logs
from art_otel.trajectories.lineage import build_turns
from art_otel.trajectories.recorded_calls import RecordedCalls, record_calls
from art_otel.trajectories.rewards import RewardScene, final_reward, find_rewards
from art_otel.trajectories.rollout_span import describe
from art_otel.trajectories.rollouts import Division, RolloutSpans, find_rollouts
from art_otel.trajectories.trajectory import PolicyVersions, Reward, Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanGroup:
    """Spans, log records and damages that may belong together, in any order."""

    spans: Sequence[Span] = ()
    logs: Sequence[LogRecord] = ()
    damages: Sequence[Damage] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembly:
    """Trajectories in the order of their rollout ids, and where every span went."""

    trajectories: tuple[Trajectory, ...]
    account: Account = field(default_factory=Account)


def build_trajectories(group: SpanGroup, rollout_spans: Sequence[str] = ()) -> Assembly:
    """Assemble a group. `rollout_spans` are globs of span names that count as rollouts (`--rollout-span`)."""
    account = Account()
    tree = grow_tree(group.spans)
    roles: dict[SpanKey, Role] = {key: role_of(span) for key, span in tree.spans.items()}
    logs = join_logs(group.logs, tree, roles, account)
    division = find_rollouts(tree, roles, rollout_spans)
    recorded = {rollout: record_calls(rollout.spans, tree, roles, logs) for rollout in division.rollouts}
    rewards = find_rewards(_scene(tree, division, roles, logs, recorded))
    damages = (*group.damages, *tree.cyclic, *rewards.bad)
    trajectories = [
        _trajectory(rollout, recorded[rollout], rewards.given_to(rollout), damages, tree)
        for rollout in division.rollouts
    ]
    count_spans(account, tree, roles, division.of, group.damages, rewards)
    _count_trajectories(account, trajectories, tree)
    return Assembly(trajectories=tuple(trajectories), account=account)


def _scene(
    tree: SpanTree,
    division: Division,
    roles: Mapping[SpanKey, Role],
    logs: Mapping[SpanKey, Sequence[LogRecord]],
    recorded: Mapping[RolloutSpans, RecordedCalls],
) -> RewardScene:
    responses: dict[str, list[Span]] = defaultdict(list)
    call_of: dict[SpanKey, str] = {}
    for calls in recorded.values():
        call_of.update(calls.call_of)
        for call in calls.calls:
            if call.response_id is not None:
                responses[call.response_id].append(tree.spans[call.trace_id, call.span_id])
    return RewardScene(tree=tree, division=division, roles=roles, logs=logs, call_of=call_of, responses=responses)


def _trajectory(
    rollout: RolloutSpans,
    recorded: RecordedCalls,
    rewards: tuple[Reward, ...],
    damages: Sequence[Damage],
    tree: SpanTree,
) -> Trajectory:
    calls, turns = build_turns(recorded.calls)
    lost, damaged_values = _damage_to(rollout, damages)
    evidence = Evidence(
        root=rollout.root,
        spans=rollout.spans,
        calls=calls,
        call_of=recorded.call_of,
        unresolved=recorded.unresolved,
        lost=lost,
        damaged_values=damaged_values,
    )
    about = describe(rollout.root)
    first = rollout.root or min(rollout.spans, key=tree.order)
    return Trajectory(
        rollout_id=rollout.rollout_id,
        trace_id=first.trace_id,
        name=about.name,
        group_id=about.group_id,
        attempt=about.attempt,
        split=about.split,
        training_step=about.training_step,
        policy_version=_policy_versions(calls, about.policy_version),
        parent_rollout_id=rollout.parent_rollout_id,
        status=about.status,
        error=about.error,
        started_at=about.started_at,
        ended_at=about.ended_at,
        incomplete_reasons=find_incomplete(evidence, tree),
        reward=final_reward(rewards),
        rewards=rewards,
        metrics=about.metrics,
        metadata=about.metadata,
        logs=about.logs,
        tools=_tools(calls),
        calls=calls,
        turns=turns,
    )


def _damage_to(rollout: RolloutSpans, damages: Iterable[Damage]) -> tuple[int, int]:
    """How many spans of the rollout's traces were lost, and how many of its own lost a value."""
    keys = {span.key for span in rollout.spans}
    traces = {trace_id for trace_id, _ in keys}
    lost: set[tuple[str | None, str | None, str]] = set()
    values: set[tuple[str | None, str | None]] = set()
    for damage in damages:
        key = (damage.trace_id, damage.span_id)
        if damage.partial:
            values.update([key] if key in keys else ())
        elif damage.trace_id in traces and key not in keys:
            lost.add((*key, damage.reason))
    return len(lost), len(values)


def _policy_versions(calls: Iterable[InferenceCall], of_rollout: str | None) -> PolicyVersions | None:
    versions = [call.policy_version for call in calls if call.policy_version is not None]
    if not versions and of_rollout is not None:
        versions = [of_rollout]
    return PolicyVersions(first=versions[0], last=versions[-1]) if versions else None


def _tools(calls: Iterable[InferenceCall]) -> tuple[object, ...]:
    """Every tool definition of any call, in the order of first use."""
    seen: dict[bytes, object] = {}
    for call in calls:
        for tool in call.tools or ():
            seen.setdefault(msgspec.json.encode(tool, order="deterministic"), tool)
    return tuple(seen.values())


def _count_trajectories(account: Account, trajectories: Iterable[Trajectory], tree: SpanTree) -> None:
    for trajectory in trajectories:
        account.trajectories += 1
        account.complete += trajectory.complete
        account.incomplete.update(trajectory.incomplete_reasons.keys())
        for call in trajectory.calls:
            account.calls_failed += call.failed
            account.calls_completed += not call.failed
            if not call.failed and is_blind(call):
                account.blind_scopes[tree.spans[call.trace_id, call.span_id].scope.name] += 1
