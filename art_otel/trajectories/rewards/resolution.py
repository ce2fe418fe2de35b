"""Resolution: the targets in a group that an address leads to.

Invariant: a target is never one of several by chance. An address that leads to nothing, or to several things of which
it means one, is unresolved and says why.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from art_otel.conventions import GivenReward
from art_otel.spans import Span, SpanKey
from art_otel.trajectories.rewards.address import RewardAddress
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


class RewardSpan(NamedTuple):
    """What gives a reward: a span of the group, or a key of one that is not here."""

    key: SpanKey
    span: Span | None = None


Resolution: TypeAlias = Target | Unresolved


def resolve_targets(
    given: GivenReward, address: RewardAddress, giver: RewardSpan, context: AttributionContext, *, anywhere: bool = True
) -> list[Resolution]:
    """What a reward is for; a target, or what is missing, for each span that it links to.

    A response is looked for in the rollout that is named beside it; where none is in that of the giver, then in its
    trace. `anywhere` says that it may be any call of the group.
    """
    if address.links:
        return [_linked(key, giver, context) for key in address.links]
    if address.response_id is not None:
        return [_answering(address, giver, context, anywhere=anywhere)]
    if address.rollout_id is not None:
        return [_run(given, address, giver, context)]
    return [_standing(giver, context)]


def _standing(giver: RewardSpan, context: AttributionContext) -> Resolution:
    rollout = context.rollout_of(giver.span)
    return Unresolved(OUTSIDE) if rollout is None else Target(rollout, giver.span)


def _linked(key: SpanKey, giver: RewardSpan, context: AttributionContext) -> Resolution:
    span = context.tree.spans.get(key)
    rollout = context.rollout_of(span)
    if rollout is not None:
        return Target(rollout, span)
    detail = f"judges span {key[1]}, which is in no rollout of the sources"
    return Unresolved(NO_SPAN if span is None else OUTSIDE, detail, is_gap=key[0] == giver.key[0])


def _answering(address: RewardAddress, giver: RewardSpan, context: AttributionContext, *, anywhere: bool) -> Resolution:
    spans = context.responses.get(address.response_id or "", ())
    candidates = [*_preferred(spans, address, giver, context), list(spans) if anywhere else []]
    calls = next((some for some in candidates if some), candidates[-1])
    rollout = context.rollout_of(calls[0]) if len(calls) == 1 else None
    if rollout is not None:
        return Target(rollout, calls[0])
    detail = f"names response {address.response_id!r}, which {len(calls)} calls have"
    return Unresolved(SEVERAL_CALLS if calls else NO_RESPONSE, detail, is_gap=True)


def _preferred(
    spans: Sequence[Span], address: RewardAddress, giver: RewardSpan, context: AttributionContext
) -> Iterator[list[Span]]:
    """The calls that go before others that have the response, too."""
    if address.rollout_id is not None:
        runs = context.assignment.by_id.get(address.rollout_id)
        named = [run for run in runs.all if _fits(run, address)] if runs is not None else []
        yield [span for span in spans if context.rollout_of(span) in named]
        return
    own = context.rollout_of(giver.span)
    if giver.span is not None and own is not None:
        call = context.calls.get((own, context.call_of.get(giver.key, "")))
        yield [giver.span] if call is not None and call.response_id is None else []
        yield [span for span in spans if context.rollout_of(span) is own]
    yield [span for span in spans if span.trace_id == giver.key[0]]


def _run(given: GivenReward, address: RewardAddress, giver: RewardSpan, context: AttributionContext) -> Resolution:
    runs = context.assignment.by_id.get(address.rollout_id or "")
    own = context.rollout_of(giver.span)
    if runs is not None and own is not None and own in runs.all and _fits(own, address):
        return Target(own, giver.span)
    found = NO_ROLLOUT if runs is None else _run_of(runs, given, address, giver)
    if isinstance(found, RolloutSpans):
        return Target(found, step=address.step)
    return Unresolved(found, f"names rollout {address.rollout_id!r}: {found}")


def _run_of(runs: RolloutIndex, given: GivenReward, address: RewardAddress, giver: RewardSpan) -> RolloutSpans | str:
    """Of the runs of an id the one that is meant, by trace, attempt and time; else why none is."""
    if address.trace_id is None and len(runs.all) == 1:
        return runs.all[0]
    in_trace = runs.of_trace(address.trace_id or giver.key[0])
    if in_trace is None and address.trace_id is not None:
        return runs.rootless or NO_ROLLOUT
    runs = in_trace or runs
    attempts = runs if address.attempt is None else runs.of_attempt(address.attempt)
    if attempts is None:
        return NO_ROLLOUT
    if len(attempts.all) == 1:
        return attempts.all[0]
    return attempts.running_at(given.time_ns) or (SEVERAL_RUNS if in_trace is None else attempts.all[-1])


def _fits(run: RolloutSpans, address: RewardAddress) -> bool:
    """Whether a run is of the trace and attempt that are named, as far as it is known."""
    if run.root is None:
        return True
    return address.trace_id in (None, run.root.trace_id) and address.attempt in (None, attempt_of(run.root))
