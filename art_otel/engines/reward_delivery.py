"""RewardDelivery: which trace each external reward is delivered to.

Invariant: each reward goes to one trace that has what it is for, else back to the trace where it stands, with the
reason. A response id says where only if one trace has it: servers repeat response ids.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from art_otel.conventions import parse_call, response_id_of_details, role_of
from art_otel.spans import LogRecord, Span
from art_otel.trajectories import ExternalReward, TraceGroups
from art_otel.trajectories.rewards.undeliverable import NO_RESPONSE, NO_ROLLOUT, SEVERAL_CALLS


def deliver(
    rewards: Callable[[], Iterable[ExternalReward]],
    records: Callable[[], Iterable[Span | LogRecord]],
    trace_groups: TraceGroups,
) -> Iterator[ExternalReward]:
    """The rewards, each with the trace that it is delivered to. All records are looked at if one names a response."""
    response_ids = {reward.address.response_id for reward in rewards()} - {None}
    answering = _answering(records() if response_ids else (), response_ids)
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


def _answering(
    records: Iterable[Span | LogRecord], response_ids: AbstractSet[str | None]
) -> Mapping[str, AbstractSet[str]]:
    """The traces whose calls have one of these response ids."""
    answering: dict[str, set[str]] = {}
    for record in records:
        response_id = _response_id(record)
        if response_id in response_ids:
            answering.setdefault(str(response_id), set()).add(record.trace_id)
    return answering


def _response_id(record: Span | LogRecord) -> str | None:
    if isinstance(record, LogRecord):
        return response_id_of_details(record)
    return parse_call(record).response_id if role_of(record) == "inference" else None
