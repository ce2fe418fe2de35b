"""Assembly: the spans of one group become trajectories. The story of this package.

Invariant: the outcome depends on the set of spans only, not on their order, their files or repeated delivery.

A group is everything that belongs together: one trace, or the traces of one rollout id, and the rewards from others.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import Role, rewards_of, role_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree, build_tree
from art_otel.trajectories.accounting.completeness import Evidence, find_incomplete, is_without_content
from art_otel.trajectories.accounting.losses import Losses, find_losses
from art_otel.trajectories.accounting.stats import Account, count_idle, count_rewards, count_spans, set_aside_logs
from art_otel.trajectories.calls.log_correlation import join_logs, logs_without_span
from art_otel.trajectories.calls.policy_versions import first_and_last, with_versions
from art_otel.trajectories.calls.recorded_calls import RecordedCalls, record_calls
from art_otel.trajectories.lineage.turns import build_lineage
from art_otel.trajectories.model import Trajectory
from art_otel.trajectories.rewards.attribution import Attribution, attribute
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.effective import final_reward
from art_otel.trajectories.rewards.external import ExternalReward
from art_otel.trajectories.rollouts.assignment import declared_id, find_rollouts, is_named_rollout
from art_otel.trajectories.rollouts.attributes import read_rollout_attributes
from art_otel.trajectories.rollouts.index import RolloutSpans

_BYSTANDERS: Final[frozenset[Role]] = frozenset({"agent", "tool", "other"})


class SpanGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Spans, log records and damages that belong together, in any order.

    `external_rewards` are what others give to these, and what came back: see `rewards.external`. They are None where
    nobody delivers rewards, so that what is for other traces is undeliverable.
    """

    spans: Sequence[Span] = ()
    logs: Sequence[LogRecord] = ()
    damages: Sequence[Quarantined] = ()
    external_rewards: Sequence[ExternalReward] | None = None


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories in the order of their rollout ids, and where every span went."""

    trajectories: tuple[Trajectory, ...]
    account: Account = msgspec.field(default_factory=Account)


def build_trajectories(group: SpanGroup, rollout_spans: Sequence[str] = (), account: Account | None = None) -> Assembly:
    """Assemble a group. `rollout_spans` are globs of span names that count as rollouts (`--rollout-span`).

    Where everything went is added to `account`, to a new one when there is none.
    """
    account = Account() if account is None else account
    if _is_idle(group, rollout_spans):
        count_idle(account, group.spans)
        return Assembly(trajectories=(), account=account)
    return Assembly(trajectories=_assemble(group, rollout_spans, account), account=account)


def _is_idle(group: SpanGroup, rollout_spans: Sequence[str]) -> bool:
    """Whether nothing in the group can become a trajectory or tell of one, as in most traces of an application."""
    if group.logs or group.damages or group.external_rewards:
        return False
    return all(map(_is_bystander, group.spans)) and not any(
        is_named_rollout(span, rollout_spans) for span in group.spans
    )


def _is_bystander(span: Span) -> bool:
    """Whether the span is no call, belongs to no rollout by its id, and gives no reward."""
    return declared_id(span) is None and role_of(span) in _BYSTANDERS and not rewards_of(span)


def _assemble(group: SpanGroup, rollout_spans: Sequence[str], account: Account) -> tuple[Trajectory, ...]:
    tree = build_tree(group.spans)
    roles: dict[SpanKey, Role] = {key: role_of(span) for key, span in tree.spans.items()}
    logs = join_logs(group.logs, tree, roles, account)
    set_aside_logs(account, group.logs, tree, group.damages)
    assignment = find_rollouts(tree, roles, rollout_spans)
    recorded = record_calls(assignment.rollouts, tree, roles, logs)
    context = AttributionContext(
        tree=tree,
        assignment=assignment,
        roles=roles,
        logs=logs,
        logs_without_span=logs_without_span(group.logs, tree),
        recorded=recorded,
        external=group.external_rewards,
    )
    rewards = attribute(context)
    losses = find_losses((*group.damages, *tree.cyclic))
    trajectories = tuple(
        _trajectory(rollout, recorded[rollout], rewards, losses, tree) for rollout in assignment.rollouts
    )
    count_spans(account, tree, roles, assignment.of, group.damages, rewards)
    count_rewards(account, rewards)
    _count_trajectories(account, trajectories, tree)
    return trajectories


def _trajectory(
    rollout: RolloutSpans,
    recorded: RecordedCalls,
    attribution: Attribution,
    losses: Losses,
    tree: SpanTree,
) -> Trajectory:
    about = read_rollout_attributes(rollout.root)
    rewards = attribution.of(rollout)
    lineage = build_lineage(with_versions(recorded.calls, about.policy_version))
    calls = lineage.calls
    lost_spans, lost_values = losses.of(rollout.spans)
    evidence = Evidence(
        root=rollout.root,
        spans=rollout.spans,
        lineage=lineage,
        call_of=recorded.call_of,
        unresolved=recorded.unresolved,
        lost_spans=lost_spans,
        lost_values=lost_values,
        bad_rewards=sum(key not in losses.values for key in attribution.bad_in.get(rollout, ())),
    )
    first = rollout.root or min(rollout.spans, key=tree.order)
    return Trajectory(
        rollout_id=rollout.rollout_id,
        trace_id=first.trace_id,
        name=about.name,
        group_id=about.group_id,
        attempt=about.attempt,
        split=about.split,
        training_step=about.training_step,
        policy_version=first_and_last(calls, about.policy_version),
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
        prompts=lineage.prompts,
        turns=lineage.turns,
    )


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
        if trajectory.incomplete_reasons:
            account.incomplete.update(trajectory.incomplete_reasons.keys())
        completed = [call for call in trajectory.calls if not call.failed]
        account.calls_completed += len(completed)
        account.calls_failed += len(trajectory.calls) - len(completed)
        for call in completed:
            if is_without_content(call):
                account.blind_scopes[tree.spans[call.trace_id, call.span_id].scope.name] += 1
