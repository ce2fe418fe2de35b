"""Attribution: the rewards of a group are joined with what they are for.

Invariant: every reward is delivered to each of its targets, or undeliverable there for a reason, or on its way to
another group; it is counted in one group only. What is delivered keeps its raw number, and missing stays None.
A rollout is told of each bad reward that stands in it: one that is no number, or misses what it is for in its own trace.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from art_otel.conventions import BadReward, GivenReward
from art_otel.spans import Quarantined, SpanKey
from art_otel.trajectories.model import Reward, Trajectory
from art_otel.trajectories.rewards.address import (
    HERE,
    AddressedReward,
    RewardAddress,
    addressed_rewards,
    addressed_rewards_of_log,
)
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.effective import final_reward
from art_otel.trajectories.rewards.records import make_reward
from art_otel.trajectories.rewards.resolution import Resolution, RewardSpan, Target, Unresolved, resolve_targets
from art_otel.trajectories.rewards.undeliverable import NO_PART, NO_RESPONSE, NO_ROLLOUT
from art_otel.trajectories.rollouts.index import RolloutSpans

_Order: TypeAlias = tuple[int, SpanKey, int, SpanKey]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """Rewards by rollout, and the account of them.

    `bad` names what was no reward, `bad_in` has the spans that gave it by the rollout in which they stand. `senders` are the spans that
    give a reward for something else than what they stand on. `undeliverable` counts by reason.
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
    for giver, reward in _given(context):
        if isinstance(reward, BadReward):
            _note_bad(reward, giver, context, attribution)
            continue
        if reward.address != HERE:
            attribution.senders.add(giver.key)
        _settle(reward.reward, giver, _resolve_here(reward, giver, context), context, attribution)
    for external in context.incoming:
        giver = RewardSpan(external.origin)
        if external.undeliverable is not None:
            attribution.undeliverable[external.undeliverable] += 1
        else:
            targets = resolve_targets(external.reward, external.address, giver, context)
            _settle(external.reward, giver, targets, context, attribution)
    return attribution


def with_rewards(trajectory: Trajectory, *given: Reward) -> Trajectory:
    """The trajectory with further rewards, as it is read again once they are recorded."""
    known = dict.fromkeys((*trajectory.rewards, *given))
    rewards = tuple(sorted(known, key=lambda reward: reward.time_ns))
    return replace(trajectory, rewards=rewards, reward=final_reward(rewards))


def _given(context: AttributionContext) -> Iterator[tuple[RewardSpan, AddressedReward | BadReward]]:
    """Every reward of the group with what gives it."""
    for key, span in context.tree.spans.items():
        giver = RewardSpan(key, span)
        yield from ((giver, reward) for reward in addressed_rewards(span))
        for log in context.logs.get(key, ()):
            yield from ((giver, reward) for reward in addressed_rewards_of_log(log))
    for log in context.logs_without_span:
        yield from ((RewardSpan(log.key), reward) for reward in addressed_rewards_of_log(log))


def _resolve_here(given: AddressedReward, giver: RewardSpan, context: AttributionContext) -> list[Resolution]:
    """The targets of a reward that stands in this group, without those that it is delivered to elsewhere."""
    reward, address = given
    if context.external is None or address == HERE:
        return resolve_targets(reward, address, giver, context)
    if address.links:
        here = tuple(key for key in address.links if key[0] in context.traces)
        return resolve_targets(reward, RewardAddress(links=here), giver, context) if here else []
    copy = context.returned.get((giver.key, reward.position))
    is_for_here = copy is not None and copy.undeliverable is None
    (found,) = resolve_targets(reward, address, giver, context, anywhere=is_for_here)
    if is_for_here or not isinstance(found, Unresolved) or found.reason not in (NO_RESPONSE, NO_ROLLOUT):
        return [found]
    return [] if copy is None else [found._replace(reason=copy.undeliverable or found.reason)]


def _settle(
    given: GivenReward,
    giver: RewardSpan,
    resolutions: Sequence[Resolution],
    context: AttributionContext,
    attribution: Attribution,
) -> None:
    """Deliver a reward to its targets, and count what it does not reach."""
    own = context.rollout_of(giver.span)
    missing: list[str] = []
    for resolution in resolutions:
        found = resolution
        if isinstance(found, Target):
            reward = make_reward(given, found, context)
            if isinstance(reward, Reward):
                _deliver(reward, given, giver, found, attribution)
                continue
            found = Unresolved(NO_PART, reward.detail, is_gap=found.rollout is own)
        attribution.undeliverable[found.reason] += 1
        if own is not None and found.is_gap:
            missing.append(found.detail)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        _note_bad(BadReward(name=given.name, detail=missing[0] + more), giver, context, attribution)


def _deliver(reward: Reward, given: GivenReward, giver: RewardSpan, target: Target, attribution: Attribution) -> None:
    target_key = ("", "") if target.span is None else target.span.key
    order = (given.time_ns, giver.key, given.position, target_key)
    attribution.by_rollout.setdefault(target.rollout, []).append((order, reward))


def _note_bad(bad: BadReward, giver: RewardSpan, context: AttributionContext, attribution: Attribution) -> None:
    trace_id, span_id = giver.key
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
    own = context.rollout_of(giver.span)
    if own is not None:
        attribution.bad_in.setdefault(own, []).append(giver.key)
