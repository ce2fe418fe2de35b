"""Build: how a group of records becomes trajectories.

A group is what belongs together: one trace, or the traces that share a rollout id, and the rewards that other traces
give to them. The steps run in this order:

    for the group
      build_tree               spans             -> each span once, below its parent, with comparable start times
      families_of              names             -> families of names, without the indices of lists (see `conventions`)
      role_of                  span              -> LLM call, agent, tool, or something else
      correlate_logs           log records       -> log records by span
      assign_rollouts          tree              -> the rollout of each span
      record_calls             inference spans   -> each LLM call once, whoever recorded it, with its whole prompt
      attribute                rewards           -> what each reward judges
      find_losses              quarantine        -> what the traces lost
    for each rollout
      read_rollout_attributes  its own span      -> name, group, status, metrics, metadata
      build_lineage            its calls         -> what each prompt continues: the trees, and turns (see `model`)
      find_incomplete          tree and lineage  -> what is missing, by reason
      find_tool_executions     tool spans        -> the tools that ran, and the turns that asked for them
    count_group                all of that       -> where every record went (`AssemblyStats`)

Invariant: the outcome depends on the set of records only, not on their order, their files or repeated delivery.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from art_otel.attributes import EXTRA, PROMPT
from art_otel.calls import CallRecord, ToolSet
from art_otel.conventions import NameFamilies, RecordedMessage, Role, families_of, may_be_run, rewards_of, role_of
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree, Value, build_tree
from art_otel.trajectories.accounting import (
    AssembledGroup,
    AssemblyStats,
    IncrementalVerdict,
    count_group,
    count_idle_spans,
)
from art_otel.trajectories.completeness import Evidence, Losses, find_incomplete, find_losses
from art_otel.trajectories.inference_calls import RecordedCalls, record_calls
from art_otel.trajectories.lineage import Lineage, build_lineage, find_tool_executions, turns_by_completion
from art_otel.trajectories.model import AddedMessage, Trajectory
from art_otel.trajectories.policy_versions import first_and_last, with_versions
from art_otel.trajectories.reward_addresses import ExternalReward
from art_otel.trajectories.rewards import Attribution, AttributionContext, deliver_rewards
from art_otel.trajectories.rollouts import RolloutSpans, assign_rollouts
from art_otel.trajectories.span_context import correlate_logs, declared_id, is_named_rollout, read_rollout_attributes

_NEW: Final[IncrementalVerdict] = "new"
_PROMPT: Final = PROMPT.removeprefix(f"{EXTRA}.")
_OUTCOMES: Final = ("not_needed", "spliced", "differing", "passed_through")
"""What becomes of a prompt that a gateway samples from ids, or cannot."""


class SpanGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Records that belong together, in any order and any number of times.

    `quarantine` is what the sources could not read of these traces. `external_rewards` are rewards from other traces,
    and rewards of these traces that were returned as undeliverable (see `reward_addresses`). It is None where nobody
    delivers rewards between groups, as in a live app.
    """

    spans: Sequence[Span] = ()
    logs: Sequence[LogRecord] = ()
    quarantine: Sequence[Quarantined] = ()
    external_rewards: Sequence[ExternalReward] | None = None


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories in the order of their rollout ids, and where every record went."""

    trajectories: tuple[Trajectory, ...]
    stats: AssemblyStats


def build_trajectories(
    group: SpanGroup,
    rollout_spans: Sequence[str] = (),
    stats: AssemblyStats | None = None,
    verdicts_of: Callable[[Sequence[Trajectory]], Sequence[IncrementalVerdict]] | None = None,
    *,
    rollout_attributes: Sequence[str] = (),
) -> Assembly:
    """Build the trajectories of a group. `rollout_spans` are globs of span names that count as rollouts.

    `rollout_attributes` are names of attributes: traces that share the value of one are a rollout.

    Where every record went is added to `stats`; to new ones when there are none. `verdicts_of` says which trajectories
    count as given, None that all do.
    """
    stats = AssemblyStats() if stats is None else stats
    if _has_nothing_to_build(group, rollout_spans):
        count_idle_spans(stats, group.spans)
        return Assembly(trajectories=(), stats=stats)
    return Assembly(trajectories=_assemble(group, rollout_spans, stats, verdicts_of, rollout_attributes), stats=stats)


def _assemble(
    group: SpanGroup,
    rollout_spans: Sequence[str],
    stats: AssemblyStats,
    verdicts_of: Callable[[Sequence[Trajectory]], Sequence[IncrementalVerdict]] | None,
    rollout_attributes: Sequence[str] = (),
) -> tuple[Trajectory, ...]:
    tree = build_tree(group.spans)
    families = {key: families_of(span.attributes) for key, span in tree.spans.items()}
    roles = _find_roles(tree, families)
    logs = correlate_logs(group.logs, tree, roles)
    assignment = assign_rollouts(tree, roles, rollout_spans, rollout_attributes)
    recorded = record_calls(assignment.rollouts, tree, roles, logs.of_spans, families)
    attribution = deliver_rewards(
        AttributionContext(
            tree=tree,
            assignment=assignment,
            roles=roles,
            logs=logs.of_spans,
            logs_without_span=logs.others,
            recorded=recorded,
            external=group.external_rewards,
        )
    )
    losses = find_losses((*group.quarantine, *tree.cyclic))
    trajectories = tuple(
        _build_trajectory(
            rollout, recorded[rollout], attribution, losses, tree, roles, assignment.candidates.get(rollout, 0)
        )
        for rollout in assignment.rollouts
    )
    assembled = AssembledGroup(
        tree=tree,
        roles=roles,
        logs=logs,
        assignment=assignment,
        attribution=attribution,
        trajectories=trajectories,
        verdicts=[_NEW for _ in trajectories] if verdicts_of is None else verdicts_of(trajectories),
    )
    count_group(stats, assembled, group.logs, group.quarantine)
    return trajectories


def _find_roles(tree: SpanTree, families: Mapping[SpanKey, NameFamilies]) -> dict[SpanKey, Role]:
    """The role of each span; one of an app that shows messages and is around calls is no call itself."""
    roles: dict[SpanKey, Role] = {key: role_of(span, families[key]) for key, span in tree.spans.items()}
    calls = [key for key, role in roles.items() if role == "inference"]
    runs = {key for key in calls if may_be_run(tree.spans[key], families[key])}
    for call in calls if runs else ():
        above = tree.parents.get(call)
        while above is not None:
            if above in runs:
                roles[above] = "other"
            above = tree.parents.get(above)
    return roles


def _build_trajectory(
    rollout: RolloutSpans,
    recorded: RecordedCalls,
    attribution: Attribution,
    losses: Losses,
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    unassigned: int,
) -> Trajectory:
    rollout_attributes = read_rollout_attributes(rollout.root)
    lineage = build_lineage(with_versions(recorded.calls, rollout_attributes.policy_version))
    lost_spans, lost_values = losses.of(rollout.spans)
    evidence = Evidence(
        root=rollout.root,
        spans=rollout.spans,
        lineage=lineage,
        call_of=recorded.call_of,
        lost_spans=lost_spans,
        lost_values=lost_values,
        unassigned=unassigned,
        # A span that lost a value is counted as that.
        bad_rewards=sum(key not in losses.values for key in attribution.bad_in.get(rollout, ())),
    )
    first_span = rollout.root or min(rollout.spans, key=tree.order)
    return Trajectory(
        rollout_id=rollout.rollout_id,
        trace_id=first_span.trace_id,
        name=rollout_attributes.name,
        group_id=rollout_attributes.group_id,
        gathering=rollout_attributes.gathering,
        attempt=rollout_attributes.attempt,
        split=rollout_attributes.split,
        training_step=rollout_attributes.training_step,
        policy_version=first_and_last(lineage.calls, rollout_attributes.policy_version),
        parent_rollout_id=rollout.parent_rollout_id,
        status=rollout_attributes.status,
        error=rollout_attributes.error,
        started_at=rollout_attributes.started_at,
        ended_at=rollout_attributes.ended_at,
        incomplete_reasons=find_incomplete(evidence, tree),
        rewards=attribution.of(rollout),
        metrics=rollout_attributes.metrics,
        metadata=_with_prompt_outcomes(rollout_attributes.metadata, lineage.calls),
        logs=rollout_attributes.logs,
        tools=_tool_definitions(lineage.calls),
        calls=lineage.calls,
        tool_calls=find_tool_executions((span for span in rollout.spans if roles[span.key] == "tool"), lineage, tree),
        added_messages=tuple(_added_messages(rollout_attributes.added_messages, lineage)),
    )


def _added_messages(recorded: Iterable[RecordedMessage], lineage: Lineage) -> Iterator[AddedMessage]:
    """The messages that the app put behind completions, where the completions are known."""
    turns: Mapping[tuple[str | None, int], int] | None = None
    for one in recorded:
        turns = turns_by_completion(lineage.calls) if turns is None else turns
        turn = turns.get((one.completion_id, one.choice))
        if turn is not None:
            yield AddedMessage(turn=turn, message=one.message)


def _with_prompt_outcomes(metadata: Mapping[str, Value], calls: Iterable[CallRecord]) -> Mapping[str, Value]:
    """The metadata with how many prompts of exact tokens were spliced, needed nothing, and so on, as calls say."""
    outcomes = [outcome for call in calls if (outcome := call.extra.get(_PROMPT)) in _OUTCOMES]
    if not outcomes:
        return metadata
    counts = {f"prompts_{outcome}": outcomes.count(outcome) for outcome in outcomes}
    together = {**counts, **metadata}
    return {name: together[name] for name in sorted(together)}


def _tool_definitions(calls: Iterable[CallRecord]) -> tuple[Value, ...]:
    """Every tool definition of any call, in the order of first use."""
    texts: dict[str, None] = {}
    last: Sequence[Value] | None = None
    for call in calls:
        if call.tools is not None and call.tools is not last:
            last = call.tools
            texts[last.json if isinstance(last, ToolSet) else msgspec.json.encode(last).decode()] = None
    if not texts:
        return ()
    united = _united(tuple(texts))
    return last if isinstance(last, ToolSet) and last.json == united else ToolSet(united)


@lru_cache(maxsize=64)
def _united(texts: tuple[str, ...]) -> str:
    """The definitions of these tool sets, each once."""
    once: dict[bytes, Value] = {}
    for definition in (definition for text in texts for definition in ToolSet(text)):
        once.setdefault(msgspec.json.encode(definition, order="deterministic"), definition)
    return msgspec.json.encode([*once.values()]).decode()


def _has_nothing_to_build(group: SpanGroup, rollout_spans: Sequence[str]) -> bool:
    """Whether the group has no call, rollout or reward, as most traces of an application have none."""
    if group.logs or group.quarantine or group.external_rewards:
        return False
    if rollout_spans and any(is_named_rollout(span, rollout_spans) for span in group.spans):
        return False
    for span in group.spans:  # first what costs least
        if declared_id(span) is not None:
            return False
    return all(map(_is_irrelevant, group.spans))


def _is_irrelevant(span: Span) -> bool:
    """Whether the span is no call and gives no reward."""
    return role_of(span) in ("agent", "tool", "other") and not rewards_of(span)
