"""Attribution: the rewards of a group are joined with what they are for.

Invariant: every reward is delivered to each of its targets, or undeliverable there for a reason, or on its way to
another group; it is counted in one group only. What is delivered keeps its raw number, and missing stays None.
A rollout counts each bad reward that stands in it: one that is no number, or misses what it is for in its own trace.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from art_otel.conventions import BadReward
from art_otel.spans import Quarantined, SpanKey
from art_otel.trajectories.model import Reward, Trajectory
from art_otel.trajectories.rewards.address import HERE, AddressedReward, RewardAddress, addressed_rewards
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.effective import final_reward
from art_otel.trajectories.rewards.external import distinct
from art_otel.trajectories.rewards.records import make_reward
from art_otel.trajectories.rewards.resolution import Resolution, Target, Unresolved, resolve_targets
from art_otel.trajectories.rewards.undeliverable import NO_PART, NO_RESPONSE, NO_ROLLOUT
from art_otel.trajectories.rollouts.index import RolloutSpans

_Order: TypeAlias = tuple[int, SpanKey, int, SpanKey]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """Rewards by rollout, and the account of them.

    `bad` names what was no reward, `bad_in` has the spans that gave it by the rollout in which they stand. `senders`
    are the spans that give a reward for something else than what they stand on. `undeliverable` counts by reason.
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
        """The rollout's rewards by time; those of one time as they stand on their span."""
        return tuple(reward for _, reward in sorted(self.by_rollout.get(rollout, ()), key=lambda entry: entry[0]))


def attribute(context: AttributionContext) -> Attribution:
    """Join the rewards of a group's spans and log records, and those that were delivered to it."""
    attribution = Attribution()
    for record in context.records():
        for given in addressed_rewards(record):
            if isinstance(given, BadReward):
                _note_bad(given, record.key, context, attribution)
                continue
            if given.address != HERE:
                attribution.senders.add(given.origin)
            _settle(given, _resolve_here(given, context), context, attribution)
    for external in distinct(context.external or ()):
        if external.origin[0] in context.traces:
            continue
        came_back = external.undeliverable
        found = resolve_targets(external, context) if came_back is None else [Unresolved(came_back)]
        _settle(external, found, context, attribution)
    return attribution


def with_rewards(trajectory: Trajectory, *given: Reward) -> Trajectory:
    """The trajectory with further rewards, as it is read again once they are recorded."""
    known = dict.fromkeys((*trajectory.rewards, *given))
    rewards = tuple(sorted(known, key=lambda reward: reward.time_ns))
    return replace(trajectory, rewards=rewards, reward=final_reward(rewards))


def _resolve_here(given: AddressedReward, context: AttributionContext) -> list[Resolution]:
    """The targets of a reward that stands in this group, without those that a copy of it is delivered to."""
    address = given.address
    if context.external is None or address == HERE:
        return resolve_targets(given, context)
    if address.links:
        here = RewardAddress(links=tuple(key for key in address.links if key[0] in context.traces))
        return resolve_targets(msgspec.structs.replace(given, address=here), context) if here.links else []
    copy = context.copies.get((given.origin, given.reward.position))
    is_for_here = copy is not None and copy.undeliverable is None
    (found,) = resolve_targets(given, context, anywhere=is_for_here)
    if is_for_here or not isinstance(found, Unresolved) or found.reason not in (NO_RESPONSE, NO_ROLLOUT):
        return [found]
    return [] if copy is None else [found._replace(reason=copy.undeliverable or found.reason)]


def _settle(
    given: AddressedReward, resolutions: Sequence[Resolution], context: AttributionContext, attribution: Attribution
) -> None:
    """Deliver a reward to its targets, and count what it does not reach."""
    own = context.rollout_of(given.origin)
    gaps: list[str] = []
    for resolution in resolutions:
        found = resolution
        if isinstance(found, Target):
            reward = make_reward(given.reward, found, context)
            if isinstance(reward, Reward):
                target = ("", "") if found.span is None else found.span.key
                order = (reward.time_ns, given.origin, given.reward.position, target)
                attribution.by_rollout.setdefault(found.rollout, []).append((order, reward))
                continue
            found = Unresolved(NO_PART, reward.detail, is_gap=found.rollout is own)
        attribution.undeliverable[found.reason] += 1
        if own is not None and found.is_gap:
            gaps.append(found.detail)
    if gaps:
        more = f" (and {len(gaps) - 1} more)" if len(gaps) > 1 else ""
        _note_bad(BadReward(name=given.reward.name, detail=gaps[0] + more), given.origin, context, attribution)


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
    own = context.rollout_of(origin)
    if own is not None:
        attribution.bad_in.setdefault(own, []).append(origin)
