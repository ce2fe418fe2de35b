"""Resolution: the targets in a group that an address leads to.

Invariant: a target is never one of several by chance. An address that leads to nothing, or to several things of which
it means one, is unresolved and says why.
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
    SEVERAL_RUNS,
)
from art_otel.trajectories.rollouts.attributes import attempt_of
from art_otel.trajectories.rollouts.index import RolloutIndex, RolloutSpans


class Target(NamedTuple):
    """What a reward is for: a span of a rollout; without one a step by its index, or all of it."""

    rollout: RolloutSpans
    span: Span | None = None
    step: int | None = None


class Unresolved(NamedTuple):
    """Why an address leads to no target. `is_gap`: the rollout in which the reward stands should have had it."""

    reason: str
    detail: str = ""
    is_gap: bool = False


Resolution: TypeAlias = Target | Unresolved


def resolve_targets(given: AddressedReward, context: AttributionContext, *, anywhere: bool = True) -> list[Resolution]:
    """What a reward is for; a target, or what is missing, for each span that it links to.

    `anywhere` says that a response may be that of any call of the group, where no other goes before.
    """
    address = given.address
    if address.links:
        return [_linked(key, given, context) for key in address.links]
    if address.response_id is not None:
        return [_answering(given, context, anywhere=anywhere)]
    if address.rollout_id is not None:
        return [_run(given, context)]
    return [_at(given.origin, context) or Unresolved(OUTSIDE)]


def _at(key: SpanKey, context: AttributionContext) -> Target | None:
    rollout = context.rollout_of(key)
    return None if rollout is None else Target(rollout, context.tree.spans[key])


def _linked(key: SpanKey, given: AddressedReward, context: AttributionContext) -> Resolution:
    reason = OUTSIDE if key in context.tree.spans else NO_SPAN
    detail = f"judges span {key[1]}, which is in no rollout of the sources"
    return _at(key, context) or Unresolved(reason, detail, is_gap=key[0] == given.origin[0])


def _answering(given: AddressedReward, context: AttributionContext, *, anywhere: bool) -> Resolution:
    response_id = given.address.response_id
    having = context.responses.get(response_id or "", ())
    candidates = [*_preferred(having, given, context), having if anywhere else ()]
    calls = next((some for some in candidates if some), ())
    target = _at(calls[0], context) if len(calls) == 1 else None
    detail = f"names response {response_id!r}, which {len(calls)} calls have"
    return target or Unresolved(SEVERAL_CALLS if calls else NO_RESPONSE, detail, is_gap=True)


def _preferred(
    having: Sequence[SpanKey], given: AddressedReward, context: AttributionContext
) -> Iterator[Sequence[SpanKey]]:
    """Calls that go before others that have the response: those of the rollout that is named, else those nearest."""
    own, rollout_id = context.rollout_of(given.origin), given.address.rollout_id
    if rollout_id is not None:
        runs = context.assignment.by_id.get(rollout_id)
        named = [run for run in runs.all if _fits(run, given.address)] if runs is not None else []
        yield [key for key in having if context.rollout_of(key) in named]
        return
    call = context.call_at(given.origin)
    yield [given.origin] if call is not None and call.response_id is None else []
    yield [key for key in having if own is not None and context.rollout_of(key) is own]
    yield [key for key in having if key[0] == given.origin[0]]


def _run(given: AddressedReward, context: AttributionContext) -> Resolution:
    address, here = given.address, _at(given.origin, context)
    runs = context.assignment.by_id.get(address.rollout_id or "")
    if runs is not None and here is not None and here.rollout in runs.all and _fits(here.rollout, address):
        return here
    found = NO_ROLLOUT if runs is None else _run_of(runs, given)
    return Target(found, step=address.step) if isinstance(found, RolloutSpans) else Unresolved(found)


def _run_of(runs: RolloutIndex, given: AddressedReward) -> RolloutSpans | str:
    """Of the runs of an id the one that is meant, by trace, attempt and time; else why none is."""
    address = given.address
    if address.trace_id is None and len(runs.all) == 1:
        return runs.all[0]
    in_trace = runs.of_trace(address.trace_id or given.origin[0])
    if in_trace is None and address.trace_id is not None:
        return runs.rootless or NO_ROLLOUT
    runs = in_trace or runs
    attempts = runs if address.attempt is None else runs.of_attempt(address.attempt)
    if attempts is None:
        return NO_ROLLOUT
    if len(attempts.all) == 1:
        return attempts.all[0]
    return attempts.running_at(given.reward.time_ns) or (SEVERAL_RUNS if in_trace is None else attempts.all[-1])


def _fits(run: RolloutSpans, address: RewardAddress) -> bool:
    """Whether a run is of the trace and attempt that are named, as far as it is known."""
    if run.root is None:
        return True
    return address.trace_id in (None, run.root.trace_id) and address.attempt in (None, attempt_of(run.root))
