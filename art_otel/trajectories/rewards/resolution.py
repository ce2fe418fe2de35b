"""Resolution: find the targets of a reward's address in a group.

Invariant: no target is chosen by chance. An address with no target, or with several candidates for one target, is
unresolved, with the reason.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from art_otel.spans import Span, SpanKey
from art_otel.trajectories.rewards.address import AddressedReward, RewardAddress
from art_otel.trajectories.rewards.context import AttributionContext
from art_otel.trajectories.rewards.undeliverable import (
    NO_RESPONSE,
    NO_ROLLOUT,
    NO_SPAN,
    OUTSIDE,
    SEVERAL_CALLS,
    SEVERAL_ROLLOUTS,
)
from art_otel.trajectories.rollouts.attributes import attempt_of
from art_otel.trajectories.rollouts.index import RolloutIndex, RolloutSpans


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
