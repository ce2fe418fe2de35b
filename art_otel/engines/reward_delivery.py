"""RewardDelivery: which trace each external reward is delivered to.

Invariant: each reward goes to one trace that has what it is for, else back to the trace where it stands, with the
reason. A response id says where only if one trace has it: servers repeat response ids.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from art_otel.conventions import parse_call, role_of
from art_otel.spans import Span
from art_otel.trajectories import ExternalReward, TraceGroups
from art_otel.trajectories.rewards.undeliverable import NO_RESPONSE, NO_ROLLOUT, SEVERAL_CALLS


def deliver(
    rewards: Callable[[], Iterable[ExternalReward]], spans: Callable[[], Iterable[Span]], trace_groups: TraceGroups
) -> Iterator[ExternalReward]:
    """The rewards, each with the trace that it is delivered to. All spans are looked at if one names a response."""
    response_ids = {reward.address.response_id for reward in rewards()} - {None}
    answering = _answering(spans() if response_ids else (), response_ids)
    for reward in rewards():
        trace_id, reason = _route(reward, answering, trace_groups)
        yield msgspec.structs.replace(reward, trace_id=trace_id, undeliverable=reason)


def _route(
    reward: ExternalReward, answering: Mapping[str, AbstractSet[str]], trace_groups: TraceGroups
) -> tuple[str, str | None]:
    """The trace that a reward is delivered to, and why it is the one where it stands, if it goes back."""
    address, back = reward.address, reward.origin[0]
    rollout_trace = None if address.rollout_id is None else trace_groups.trace_of(address.rollout_id)
    if reward.undeliverable is not None:
        return back, reward.undeliverable
    if address.response_id is None:
        return (back, NO_ROLLOUT) if rollout_trace is None else (rollout_trace, None)
    traces = answering.get(address.response_id, frozenset())
    if rollout_trace is not None:
        group = trace_groups.representative(rollout_trace)
        traces = {trace for trace in traces if trace_groups.representative(trace) == group} or traces
        if traces and all(trace_groups.representative(trace) == group for trace in traces):
            return rollout_trace, None
    if len(traces) == 1:
        return next(iter(traces)), None
    return back, SEVERAL_CALLS if traces else NO_RESPONSE


def _answering(spans: Iterable[Span], response_ids: AbstractSet[str | None]) -> Mapping[str, AbstractSet[str]]:
    """The traces whose calls have one of these response ids."""
    answering: dict[str, set[str]] = {}
    for span in spans:
        if role_of(span) == "inference" and (response_id := parse_call(span).response_id) in response_ids:
            answering.setdefault(str(response_id), set()).add(span.trace_id)
    return answering
