"""Build: make the trajectories of a group of records. `build_trajectories` has all steps in order.

A group is one trace, or all traces that share a rollout id, with the rewards that other traces give to them.
Invariant: the trajectories depend on the set of records only, not on their order, files or repeated delivery.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from art_otel.attributes import ROLLOUT_ID, ROLLOUT_JOINED_ID
from art_otel.calls import InferenceCall
from art_otel.conventions import NameFamilies, Role, families_of, may_be_run, may_give_to_others, rewards_of, role_of
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
    """The records of one or more linked traces, in any order, each any number of times.

    `quarantine` lists the records of these traces that could not be read. `external_rewards` are rewards from other
    traces, and rewards of these traces that came back as undeliverable (see `rewards`); None if nothing delivers
    rewards between groups, as in a live app.
    """

    spans: Sequence[Span] = ()
    logs: Sequence[LogRecord] = ()
    quarantine: Sequence[Quarantined] = ()
    external_rewards: Sequence[ExternalReward] | None = None


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories in the order of their rollout ids, and counts of what became of every record."""

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
    """Build the trajectories of a group.

        build_trajectories(SpanGroup(spans=spans)).trajectories

    `rollout_spans` are globs: spans with such names are rollouts. `rollout_attributes` are names of attributes: traces
    that share a value are one rollout. Counts are added to `stats`. `outcomes_of` says what becomes of each trajectory
    (one entry each); None: all are new.
    """
    stats = AssemblyStats() if stats is None else stats
    if _is_idle(group, rollout_spans):  # fast path: most traces of an application have no LLM call
        count_idle_spans(stats, group.spans)
        return Assembly(trajectories=(), stats=stats)

    # Each span once, with the contents of recorded HTTP bodies, below its parent, its start corrected for clock skew;
    # and the role of each span: a call, an agent, a tool, ….
    tree = build_tree([whole(span) for span in group.spans])
    families = {key: families_of(span.attributes) for key, span in tree.spans.items()}
    roles = _find_roles(tree, families)

    # The rollout of each span; each LLM call once, however many recorded it; the target of each reward.
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
        # Facts that were given to the rollout afterwards are read as if its own span had recorded them.
        if root is not None and (facts := attribution.facts_of(rollout)):
            root = msgspec.structs.replace(root, attributes={**root.attributes, **facts})
        # The calls in causal order, with their gaps, in the two trees of prompts and answers.
        lineage = build_lineage(_with_version(recorded[rollout].calls, version_of_rollout(root)))
        incomplete_reasons = find_incomplete(
            rollout,
            lineage.recorded,
            recorded[rollout].call_of,
            tree,
            losses,
            unrecorded=unrecorded_answers(lineage),
            unassigned=assignment.candidates.get(rollout, 0),
            # A span that lost a value is counted by its quarantined value, and not again as a bad reward.
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
"""The most spans of a group that is built together with other groups."""


def join_groups(groups: Iterable[SpanGroup], most: int, rollout_spans: Sequence[str] = ()) -> Iterator[SpanGroup]:
    """Join small groups to groups of at most `most` spans: one pass over many short traces takes half of the time.

        trace a:  root, call  ┐
        trace b:  root, call  ├  one group of three independent trees
        trace c:  root, call  ┘

    A group stays alone if it may influence another one: if it has log records, quarantined records, links, rewards for
    others or joined traces, or a rollout id that is also the id of another group's trace.
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
    """Whether the group has no call, no rollout and no reward."""
    if not _is_only_spans(group):
        return False
    for span in group.spans:  # the cheap test first, on all spans
        if ROLLOUT_ID in span.attributes:
            return False
    return not any(_matters(span, rollout_spans) for span in group.spans)


def _matters(span: Span, rollout_spans: Sequence[str]) -> bool:
    """Whether the span is a call, has the name of a rollout, or carries a reward."""
    is_idle = role_of(span) in ("agent", "tool", "other") and not rewards_of(span)
    return not is_idle or (bool(rollout_spans) and is_named_rollout(span, rollout_spans))


def _find_roles(tree: SpanTree, families: Mapping[SpanKey, NameFamilies]) -> dict[SpanKey, Role]:
    """The role of each span. An app's span with messages that encloses calls (an agent's run) is no call itself."""
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
    """The calls, with the rollout's policy version if they have no version of their own."""
    if version is None:
        return calls
    replace = msgspec.structs.replace
    return [call if call.policy_version is not None else replace(call, policy_version=version) for call in calls]
