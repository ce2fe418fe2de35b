"""Rewards: every reward of a group is delivered to what it judges, or the reason is counted.

Invariant: every reward is delivered to each of its targets, or undeliverable there for a reason, or pending delivery to
another group; it is counted in one group only. No target is chosen by chance: an address with no target, or with
several candidates for one target, is unresolved. A delivered reward keeps its raw number, and missing stays None; its
record names the nearest call or step at or above its target, and a choice by its position in the call. A rollout counts
each bad reward in it: one that is no number, or whose target its own trace should have.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import BadReward, RecordedReward, Role
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree
from art_otel.trajectories.inference_calls import RecordedCalls, step_index
from art_otel.trajectories.model import Reward
from art_otel.trajectories.reward_addresses import (
    NO_PART,
    NO_RESPONSE,
    NO_ROLLOUT,
    NO_SPAN,
    OUTSIDE,
    OWN_SPAN,
    SEVERAL_CALLS,
    SEVERAL_ROLLOUTS,
    AddressedReward,
    ExternalReward,
    RewardAddress,
    RewardKey,
    addressed_rewards,
    distinct,
)
from art_otel.trajectories.rollouts import RolloutAssignment, RolloutIndex, RolloutSpans
from art_otel.trajectories.span_context import attempt_of, is_reward_span


class EnclosingCallAndStep(NamedTuple):
    """The call (its span id) and the step that a span is or lies in."""

    call: str | None = None
    step: Span | None = None


class AttributionContext(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A tree, its rollouts, roles, log records, and the calls of its spans.

    `logs` are those of the tree's spans, `logs_without_span` those of spans that are not here. `external` are rewards
    from other traces, None if no rewards are delivered between groups.
    """

    tree: SpanTree
    assignment: RolloutAssignment
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    logs_without_span: Sequence[LogRecord] = ()
    recorded: Mapping[RolloutSpans, RecordedCalls]
    external: Sequence[ExternalReward] | None = None

    def records(self) -> Iterator[Span | LogRecord]:
        """Everything that may give a reward."""
        return chain(self.tree.spans.values(), *self.logs.values(), self.logs_without_span)

    def rollout_of(self, key: SpanKey) -> RolloutSpans | None:
        """The rollout that a span is in."""
        return self.assignment.of.get(key)

    def call_at(self, key: SpanKey) -> InferenceCall | None:
        """The call that an inference span describes."""
        rollout = self.rollout_of(key)
        return None if rollout is None else self.calls.get((rollout, self.call_of.get(key)))

    @cached_property
    def traces(self) -> AbstractSet[str]:
        """The traces of the group."""
        return {record.trace_id for record in self.records()}

    @cached_property
    def copies(self) -> Mapping[RewardKey, ExternalReward]:
        """The copies of rewards of this group, which were delivered to it or returned as undeliverable."""
        return {reward.key: reward for reward in distinct(self.external or ()) if reward.origin[0] in self.traces}

    @cached_property
    def call_of(self) -> Mapping[SpanKey, str]:
        """The span id of the call that an inference span describes."""
        return {key: call for recorded in self.recorded.values() for key, call in recorded.call_of.items()}

    @cached_property
    def calls(self) -> Mapping[tuple[RolloutSpans, str | None], InferenceCall]:
        """Every call by its rollout and span id."""
        return {(rollout, call.span_id): call for rollout, recorded in self.recorded.items() for call in recorded.calls}

    @cached_property
    def responses(self) -> Mapping[str, Sequence[SpanKey]]:
        """The calls that have a response id."""
        keys: dict[str, list[SpanKey]] = {}
        for call in self.calls.values():
            if call.response_id is not None:
                keys.setdefault(call.response_id, []).append((call.trace_id, call.span_id))
        return keys

    @cached_property
    def enclosing(self) -> Mapping[SpanKey, EnclosingCallAndStep]:
        """The nearest call and step at or above each span, within its rollout. No call above the step counts."""
        return self.tree.inherit(self._enclosing)

    def _enclosing(self, key: SpanKey, above: EnclosingCallAndStep | None) -> EnclosingCallAndStep:
        span, rollout, parent = self.tree.spans[key], self.assignment.of[key], self.tree.parents.get(key)
        if rollout is not None and key in rollout.root_keys:
            return EnclosingCallAndStep()
        call = self.call_of.get(key)
        if attributes.STEP_INDEX in span.attributes:
            return EnclosingCallAndStep(call, span)
        if parent is None or above is None or self.assignment.of[parent] is not rollout:
            return EnclosingCallAndStep(call)
        return EnclosingCallAndStep(call or above.call, above.step)


class Target(NamedTuple):
    """What a reward is for: a span of a rollout; without one a step by its index, or all of it."""

    rollout: RolloutSpans
    span: Span | None = None
    step: int | None = None


class UnresolvedTarget(NamedTuple):
    """Why an address has no target. `counts_as_bad`: the reward's own rollout counts a bad reward."""

    reason: str
    detail: str = ""
    counts_as_bad: bool = False


Resolution: TypeAlias = Target | UnresolvedTarget


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
        """How many deliveries of rewards reached a target; a reward with several links is delivered to each."""
        return sum(map(len, self.by_rollout.values()))

    def of(self, rollout: RolloutSpans) -> tuple[Reward, ...]:
        """The rollout's rewards by time; those of one time as their spans say, then by their position on them."""
        return tuple(reward for _, reward in sorted(self.by_rollout.get(rollout, ()), key=lambda entry: entry[0]))


def deliver_rewards(context: AttributionContext) -> Attribution:
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


def resolve_targets(
    addressed: AddressedReward, context: AttributionContext, *, anywhere: bool = True
) -> list[Resolution]:
    """Find what a reward is for: a target, or why there is none, for each span that it links to.

    `anywhere` allows a response id to name any call of the group, if no nearer call has it and the reward names no
    rollout of the group.
    """
    address = addressed.address
    if address.links:
        return [_resolve_link(key, addressed, context) for key in address.links]
    if address.response_id is not None:
        return [_resolve_response_id(addressed, context, anywhere=anywhere)]
    if address.rollout_id is not None:
        return [_resolve_rollout(addressed, context)]
    return [_at(addressed.origin, context) or UnresolvedTarget(_outside(addressed.origin, context))]


def _at(key: SpanKey, context: AttributionContext) -> Target | None:
    rollout = context.rollout_of(key)
    return None if rollout is None else Target(rollout, context.tree.spans[key])


def _outside(key: SpanKey, context: AttributionContext) -> str:
    """Why a span of the sources is in no rollout."""
    return SEVERAL_ROLLOUTS if key in context.assignment.unassigned else OUTSIDE


def _resolve_link(key: SpanKey, addressed: AddressedReward, context: AttributionContext) -> Resolution:
    reason = _outside(key, context) if key in context.tree.spans else NO_SPAN
    detail = f"judges span {key[1]}, which is in no rollout of the sources"
    return _at(key, context) or UnresolvedTarget(reason, detail, counts_as_bad=key[0] == addressed.origin[0])


def _resolve_response_id(addressed: AddressedReward, context: AttributionContext, *, anywhere: bool) -> Resolution:
    response_id = addressed.address.response_id
    candidates = context.responses.get(response_id or "", ())
    anywhere = anywhere and addressed.address.rollout_id not in context.assignment.by_id
    candidate_lists = [*_preferred(candidates, addressed, context), candidates if anywhere else ()]
    calls = next(filter(None, candidate_lists), ())
    target = _at(calls[0], context) if len(calls) == 1 else None
    detail = f"names response {response_id!r}, which {len(calls)} calls have"
    return target or UnresolvedTarget(SEVERAL_CALLS if calls else NO_RESPONSE, detail, counts_as_bad=True)


def _preferred(
    candidates: Sequence[SpanKey], addressed: AddressedReward, context: AttributionContext
) -> Iterator[Sequence[SpanKey]]:
    """The preferred calls with the response, nearest first; if the reward names a rollout, only its calls."""
    origin_rollout, rollout_id = context.rollout_of(addressed.origin), addressed.address.rollout_id
    if rollout_id is not None:
        rollouts = context.assignment.by_id.get(rollout_id)
        all_rollouts = () if rollouts is None else rollouts.all
        named = [rollout for rollout in all_rollouts if _fits(rollout, addressed.address)]
        yield [key for key in candidates if context.rollout_of(key) in named]
        return
    call = context.call_at(addressed.origin)
    yield [addressed.origin] if call is not None and call.response_id is None else []
    yield [key for key in candidates if origin_rollout is not None and context.rollout_of(key) is origin_rollout]
    yield [key for key in candidates if key[0] == addressed.origin[0]]


def _resolve_rollout(addressed: AddressedReward, context: AttributionContext) -> Resolution:
    address, origin = addressed.address, _at(addressed.origin, context)
    rollouts = context.assignment.by_id.get(address.rollout_id or "")
    if rollouts is None:
        return UnresolvedTarget(NO_ROLLOUT)
    if origin is not None and origin.rollout in rollouts.all and _fits(origin.rollout, address):
        return origin
    chosen = _choose_rollout(rollouts, addressed)
    return Target(chosen, step=address.step) if isinstance(chosen, RolloutSpans) else UnresolvedTarget(chosen)


def _choose_rollout(rollouts: RolloutIndex, addressed: AddressedReward) -> RolloutSpans | str:
    """Choose among the rollouts with one id, by trace, attempt and time; else say why none can be chosen."""
    address = addressed.address
    if address.trace_id is None and len(rollouts.all) == 1:
        return rollouts.all[0]
    in_trace = rollouts.of_trace(address.trace_id or addressed.origin[0])
    if in_trace is None and address.trace_id is not None:
        return rollouts.rootless or NO_ROLLOUT
    rollouts = in_trace or rollouts
    attempts = rollouts if address.attempt is None else rollouts.of_attempt(address.attempt)
    if attempts is None:
        return NO_ROLLOUT
    if len(attempts.all) == 1:
        return attempts.all[0]
    return attempts.running_at(addressed.reward.time_ns) or SEVERAL_ROLLOUTS


def _fits(rollout: RolloutSpans, address: RewardAddress) -> bool:
    """Whether the rollout has the trace and attempt of the address; without a root that is unknown, and it fits."""
    if rollout.root is None:
        return True
    return address.trace_id in (None, rollout.root.trace_id) and address.attempt in (None, attempt_of(rollout.root))


def make_reward(recorded: RecordedReward, target: Target, context: AttributionContext) -> Reward | BadReward:
    """Make the record of a reward for a target; bad if it is for a part that the target does not have."""
    span_id, step = _target_ids(target, context)
    if span_id is None and _is_of_part(recorded) and target.span is not None:
        span_id = context.call_of.get(target.span.key)  # a call that is a whole rollout by itself
    reward = Reward(
        name=recorded.name,
        value=recorded.value,
        step=step,
        target=span_id,
        target_kind=_target_kind(target, context),
        source=recorded.source,
        time_ns=recorded.time_ns,
        label=recorded.label,
        explanation=recorded.explanation,
        choice=recorded.choice,
        token_start=recorded.token_start,
        token_end=recorded.token_end,
    )
    return fit_part(reward, context.calls.get((target.rollout, span_id))) if _is_of_part(reward) else reward


def fit_part(reward: Reward, call: InferenceCall | None) -> Reward | BadReward:
    """Replace the choice's index by its position; bad if the call has no such choice or tokens."""
    if not _is_of_part(reward):
        return reward
    if call is None:
        return BadReward(name=reward.name, detail="judges a choice or tokens of what is no call")
    if call.choices is None:
        return reward
    index = reward.choice or 0
    position = next((at for at, choice in enumerate(call.choices) if choice.index == index), None)
    if position is None:
        return BadReward(name=reward.name, detail=f"judges choice {index} of a call that has no such choice")
    sampled = call.choices[position].token_ids
    if reward.token_end is not None and sampled is not None and reward.token_end > len(sampled):
        detail = f"judges tokens up to {reward.token_end} of a completion of {len(sampled)} tokens"
        return BadReward(name=reward.name, detail=detail)
    return reward if position == index else msgspec.structs.replace(reward, choice=position)


def _is_of_part(reward: Reward | RecordedReward) -> bool:
    return reward.choice is not None or reward.token_end is not None


def _target_ids(target: Target, context: AttributionContext) -> tuple[str | None, int | None]:
    """The span id of the call, step, agent or tool that the target is or lies in, and the index of its step.

    (None, None) is the whole rollout, (None, its index) a step that only its index names.
    """
    span = target.span
    if span is None or span.key in target.rollout.root_keys:
        return None, target.step
    call, step = context.enclosing[span.key]
    target_id = span.span_id if _target_kind(target, context) else call
    if step is None:
        return target_id, None
    return target_id or (None if is_reward_span(step) else step.span_id), step_index(step)


def _target_kind(target: Target, context: AttributionContext) -> Literal["agent", "tool"] | None:
    """What the target is, when it is an agent or tool."""
    span = target.span
    if span is None or span.key in target.rollout.root_keys or span.key in context.call_of:
        return None
    role = context.roles[span.key]
    return role if role in ("agent", "tool") else None
