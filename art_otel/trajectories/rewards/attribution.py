"""Attribution: deliver the rewards of a group to their targets.

Invariant: every reward is delivered to each of its targets, or undeliverable there for a reason, or pending
delivery to another group; it is counted in one group only. A delivered reward keeps its raw number, and missing stays
None. A rollout counts each bad reward in it: one that is no number, or whose target its own trace should have.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from art_otel.conventions import BadReward
from art_otel.spans import Quarantined, SpanKey
from art_otel.trajectories.model import Reward, Trajectory
from art_otel.trajectories.rewards.address import OWN_SPAN, AddressedReward, RewardAddress, addressed_rewards
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.external import distinct
from art_otel.trajectories.rewards.records import make_reward
from art_otel.trajectories.rewards.resolution import Resolution, Target, UnresolvedTarget, resolve_targets
from art_otel.trajectories.rewards.undeliverable import NO_PART, NO_RESPONSE, NO_ROLLOUT
from art_otel.trajectories.rollouts.index import RolloutSpans

_Order: TypeAlias = tuple[int, str, SpanKey, int, SpanKey]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """Rewards by rollout, and their counts.

    `bad` lists the bad rewards, `bad_in` the spans that carry them, by rollout. `senders` are the spans that give a
    reward for something else than themselves. `undeliverable` counts by reason.
    """

    by_rollout: dict[RolloutSpans, list[tuple[_Order, Reward]]] = field(
        default_factory=dict[RolloutSpans, list[tuple[_Order, Reward]]]
    )
    bad: list[Quarantined] = field(default_factory=list[Quarantined])
    bad_in: dict[RolloutSpans, list[SpanKey]] = field(default_factory=dict[RolloutSpans, list[SpanKey]])
    senders: set[SpanKey] = field(default_factory=set[SpanKey])
    undeliverable: Counter[str] = field(default_factory=Counter[str])

    @property
    def delivered(self) -> int:
        """How many rewards reached a target."""
        return sum(map(len, self.by_rollout.values()))

    def of(self, rollout: RolloutSpans) -> tuple[Reward, ...]:
        """The rollout's rewards by time; those of one time as their spans say, then by their position on them."""
        return tuple(reward for _, reward in sorted(self.by_rollout.get(rollout, ()), key=lambda entry: entry[0]))


def attribute(context: AttributionContext) -> Attribution:
    """Deliver the rewards of a group's spans and log records, and the external ones."""
    attribution = Attribution()
    for record in context.records():
        for addressed in addressed_rewards(record):
            if isinstance(addressed, BadReward):
                _note_bad(addressed, record.key, context, attribution)
                continue
            if addressed.address != OWN_SPAN:
                attribution.senders.add(addressed.origin)
            _deliver(addressed, _resolve_here(addressed, context), context, attribution)
    for external in distinct(context.external or ()):
        if external.origin[0] in context.traces:
            continue
        reason = external.undeliverable
        resolutions = resolve_targets(external, context) if reason is None else [UnresolvedTarget(reason)]
        _deliver(external, resolutions, context, attribution)
    return attribution


def with_rewards(trajectory: Trajectory, *new_rewards: Reward) -> Trajectory:
    """Add rewards to a trajectory, as if they had been recorded."""
    unique = dict.fromkeys((*trajectory.rewards, *new_rewards))
    rewards = tuple(sorted(unique, key=lambda reward: reward.time_ns))
    return replace(trajectory, rewards=rewards, reward=None)


def _resolve_here(addressed: AddressedReward, context: AttributionContext) -> list[Resolution]:
    """Find the targets of a reward of this group, without those that a copy of it is delivered to."""
    address = addressed.address
    if context.external is None or address == OWN_SPAN:
        return resolve_targets(addressed, context)
    if address.links:
        here = RewardAddress(links=tuple(key for key in address.links if key[0] in context.traces))
        return resolve_targets(msgspec.structs.replace(addressed, address=here), context) if here.links else []
    copy = context.copies.get((addressed.origin, addressed.reward.position))
    is_for_here = copy is not None and copy.undeliverable is None
    (resolution,) = resolve_targets(addressed, context, anywhere=is_for_here)
    is_unresolved = isinstance(resolution, UnresolvedTarget)
    if is_for_here or not is_unresolved or resolution.reason not in (NO_RESPONSE, NO_ROLLOUT):
        return [resolution]
    return [] if copy is None else [resolution._replace(reason=copy.undeliverable or resolution.reason)]


def _deliver(
    addressed: AddressedReward, resolutions: Sequence[Resolution], context: AttributionContext, attribution: Attribution
) -> None:
    """Deliver a reward to its targets, and count what it does not reach."""
    origin_rollout = context.rollout_of(addressed.origin)
    bad_details: list[str] = []
    for outcome in resolutions:
        resolution = outcome
        if isinstance(resolution, Target):
            reward = make_reward(addressed.reward, resolution, context)
            if isinstance(reward, Reward):
                target_key = ("", "") if resolution.span is None else resolution.span.key
                recorded = addressed.reward
                order = (recorded.time_ns, recorded.order, addressed.origin, recorded.position, target_key)
                attribution.by_rollout.setdefault(resolution.rollout, []).append((order, reward))
                continue
            is_same_rollout = resolution.rollout is origin_rollout
            resolution = UnresolvedTarget(NO_PART, reward.detail, counts_as_bad=is_same_rollout)
        attribution.undeliverable[resolution.reason] += 1
        if origin_rollout is not None and resolution.counts_as_bad:
            bad_details.append(resolution.detail)
    if bad_details:
        more = f" (and {len(bad_details) - 1} more)" if len(bad_details) > 1 else ""
        _note_bad(
            BadReward(name=addressed.reward.name, detail=bad_details[0] + more), addressed.origin, context, attribution
        )


def _note_bad(bad: BadReward, origin: SpanKey, context: AttributionContext, attribution: Attribution) -> None:
    trace_id, span_id = origin
    attribution.bad.append(
        Quarantined(
            reason="bad reward",
            path=f"trace {trace_id} / span {span_id} / reward {bad.name!r}",
            detail=bad.detail,
            trace_id=trace_id,
            span_id=span_id,
            partial=True,
        )
    )
    rollout = context.rollout_of(origin)
    if rollout is not None:
        attribution.bad_in.setdefault(rollout, []).append(origin)
