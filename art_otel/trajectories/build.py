"""Build: how a group of records becomes trajectories. `build_trajectories` tells it, step by step.

A group is what belongs together: one trace, or the traces that share a rollout id, and the rewards that other traces
give to them. The outcome depends on the set of records only, not on their order, files or repeated delivery.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from art_otel.attributes import ROLLOUT_ID, ROLLOUT_JOINED_ID
from art_otel.calls import InferenceCall
from art_otel.conventions import (
    NameFamilies,
    Role,
    families_of,
    may_be_run,
    may_give_to_others,
    rewards_of,
    role_of,
)
from art_otel.conventions.exchanges import whole
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree, build_tree
from art_otel.trajectories.accounting import (
    AssembledGroup,
    AssemblyStats,
    IncrementalOutcome,
    count_group,
    count_idle_spans,
)
from art_otel.trajectories.inference_calls import correlate_logs, record_calls
from art_otel.trajectories.lineage import build_lineage, unrecorded_answers
from art_otel.trajectories.model import Trajectory
from art_otel.trajectories.rewards import AttributionContext, ExternalReward, deliver_rewards
from art_otel.trajectories.rollouts import assign_rollouts, declared_id, is_named_rollout
from art_otel.trajectories.tool_executions import find_tool_executions
from art_otel.trajectories.trajectory_fields import trajectory_fields, version_of_rollout
from art_otel.trajectories.wholeness import find_incomplete, find_losses

_NEW: Final[IncrementalOutcome] = "new"


class SpanGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Records that belong together, in any order and any number of times.

    `quarantine` is what the sources could not read of these traces. `external_rewards` are rewards from other traces,
    and rewards of these traces that were returned as undeliverable (see `rewards`). It is None where nobody
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
    outcomes_of: Callable[[Sequence[Trajectory]], Sequence[IncrementalOutcome]] | None = None,
    *,
    rollout_attributes: Sequence[str] = (),
) -> Assembly:
    """Build the trajectories of a group. `rollout_spans` are globs of span names that count as rollouts.

    `rollout_attributes` are names of attributes: traces that share the value of one are a rollout.

    Where every record went is added to `stats`; to new ones when there are none. `outcomes_of` says which trajectories
    count as given, None that all do.
    """
    stats = AssemblyStats() if stats is None else stats
    if _is_idle(group, rollout_spans):  # as in most traces of an application
        count_idle_spans(stats, group.spans)
        return Assembly(trajectories=(), stats=stats)

    # Each span once, with what the bodies on it mean, below its parent, with comparable start times; and what each is:
    # a call, an agent, a tool, ….
    tree = build_tree([whole(span) for span in group.spans])
    families = {key: families_of(span.attributes) for key, span in tree.spans.items()}
    roles = _find_roles(tree, families)

    # The rollout of each span; each LLM call once, whoever recorded it; what each reward judges.
    assignment = assign_rollouts(tree, roles, rollout_spans, rollout_attributes)
    logs = correlate_logs(group.logs, tree, roles)
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

    trajectories: list[Trajectory] = []
    for rollout in assignment.rollouts:
        root = rollout.root
        if root is not None and (facts := attribution.facts_of(rollout)):  # as if they had been recorded there
            root = msgspec.structs.replace(root, attributes={**root.attributes, **facts})
        # The calls in causal order, with what is not whole in them, and the two trees of their prompts and answers.
        lineage = build_lineage(_with_version(recorded[rollout].calls, version_of_rollout(root)))
        incomplete_reasons = find_incomplete(
            rollout,
            lineage.recorded,
            recorded[rollout].call_of,
            tree,
            losses,
            unrecorded=unrecorded_answers(lineage),
            unassigned=assignment.candidates.get(rollout, 0),
            # A span that lost a value is counted as that.
            bad_rewards=sum(key not in losses.values for key in attribution.bad_in.get(rollout, ())),
        )
        tools = [span for span in rollout.spans if roles[span.key] == "tool"]
        trajectories.append(
            Trajectory(
                rollout_id=rollout.rollout_id,
                trace_id=(root or min(rollout.spans, key=tree.order)).trace_id,
                **trajectory_fields(root, lineage.calls),
                parent_rollout_id=rollout.parent_rollout_id,
                incomplete_reasons=incomplete_reasons,
                rewards=attribution.of(rollout),
                calls=lineage.calls,
                tool_calls=find_tool_executions(tools, lineage.calls, tree),
            )
        )

    assembled = AssembledGroup(
        tree=tree,
        roles=roles,
        logs=logs,
        assignment=assignment,
        attribution=attribution,
        trajectories=trajectories,
        outcomes=[_NEW for _ in trajectories] if outcomes_of is None else outcomes_of(trajectories),
    )
    count_group(stats, assembled, group.logs, group.quarantine)
    return Assembly(trajectories=tuple(trajectories), stats=stats)


_SMALL: Final = 32
"""The most spans of a group that is built together with others."""


def join_groups(groups: Iterable[SpanGroup], most: int, rollout_spans: Sequence[str] = ()) -> Iterator[SpanGroup]:
    """The groups, small ones joined to at most so many spans: a pass over many short traces costs half of many passes.

        trace a:  root, call  ┐
        trace b:  root, call  ├  one group of three trees, in which no two have to do with each other
        trace c:  root, call  ┘

    What may lead from one group to another stays alone: what is no span, what may give a reward to others, traces that
    are joined, and a rollout that has the id of another one's trace.
    """
    joined: list[Span] = []
    names: set[str] = set()
    for group in groups:
        spans = group.spans
        if (
            len(spans) > _SMALL
            or not _is_only_spans(group)
            or any(span.links or may_give_to_others(span) or ROLLOUT_JOINED_ID in span.attributes for span in spans)
            or _is_idle(group, rollout_spans)
        ):
            yield group
            continue
        its_names = {span.trace_id for span in spans} | {name for span in spans if (name := declared_id(span))}
        if joined and (len(joined) + len(spans) > most or not names.isdisjoint(its_names)):
            yield SpanGroup(spans=joined, external_rewards=())
            joined, names = [], set[str]()
        joined += spans
        names |= its_names
    if joined:
        yield SpanGroup(spans=joined, external_rewards=())


def _is_only_spans(group: SpanGroup) -> bool:
    return not (group.logs or group.quarantine or group.external_rewards)


def _is_idle(group: SpanGroup, rollout_spans: Sequence[str]) -> bool:
    """Whether the group holds no call, no rollout and no reward."""
    if not _is_only_spans(group):
        return False
    for span in group.spans:  # first what costs least
        if ROLLOUT_ID in span.attributes:
            return False
    return not any(_matters(span, rollout_spans) for span in group.spans)


def _matters(span: Span, rollout_spans: Sequence[str]) -> bool:
    """Whether the span is a call, is a rollout by its name, or gives a reward."""
    is_idle = role_of(span) in ("agent", "tool", "other") and not rewards_of(span)
    return not is_idle or (bool(rollout_spans) and is_named_rollout(span, rollout_spans))


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


def _with_version(calls: Sequence[InferenceCall], version: str | None) -> Sequence[InferenceCall]:
    """The calls, with the rollout's policy version where they do not say their own."""
    if version is None:
        return calls
    replace = msgspec.structs.replace
    return [call if call.policy_version is not None else replace(call, policy_version=version) for call in calls]
