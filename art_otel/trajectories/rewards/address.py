"""RewardAddress: what a reward is for.

Invariant: the address is read from the span or log record that gives the reward and from nothing else, so everybody
who sees the record sees the same address. The first that is named counts: the spans that its span links to, a response
id, a rollout. A reward that names none of these is for the span that carries it.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.conventions import BadReward, RecordedReward, has_response, integer, rewards_of, rewards_of_log, role_of
from art_otel.spans import Attributes, LogRecord, Span, SpanKey
from art_otel.trajectories.limits import MAX_REWARD_BYTES
from art_otel.trajectories.rollouts.marks import declared_id, is_marked_root, is_reward_span

_REWARD_OVERHEAD_BYTES: Final = 100
"""What a reward takes besides its texts."""

_FIRST_LOG_POSITION: Final = 1 << 32
"""The position of the first reward in log records."""


class RewardAddress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reward is for; without any field set: for the span that carries it.

    `rollout_id` beside a response id says in which rollout the response is. `trace_id` and `attempt` tell rollouts
    of one id apart, `step` names a step of the rollout by its index.
    """

    links: tuple[SpanKey, ...] = ()
    response_id: str | None = None
    rollout_id: str | None = None
    trace_id: str | None = None
    attempt: int | None = None
    step: int | None = None


OWN_SPAN: Final = RewardAddress()


class AddressedReward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reward, the span that carries it (two empty ids: none), and its address."""

    origin: SpanKey
    reward: RecordedReward
    address: RewardAddress


def addressed_rewards(record: Span | LogRecord) -> Sequence[AddressedReward | BadReward]:
    """The rewards that a span or log record gives."""
    rewards = rewards_of_log(record) if isinstance(record, LogRecord) else rewards_of(record)
    if not rewards:
        return ()
    if isinstance(record, LogRecord):
        return [_of_log(reward, record) for reward in rewards]
    links = _links(record)
    if len(links) > 1 and (size := sum(map(_size, rewards)) * len(links)) > MAX_REWARD_BYTES:
        detail = f"{len(rewards)} rewards for {len(links)} spans each are {size} bytes: give them on several spans"
        return [BadReward(name=rewards[0].name, detail=detail)]
    return [_of_span(reward, record, links) for reward in rewards]


def _of_span(reward: RecordedReward | BadReward, span: Span, links: tuple[SpanKey, ...]) -> AddressedReward | BadReward:
    if isinstance(reward, BadReward):
        return reward
    address = RewardAddress(links=links)
    if not links and role_of(span) != "inference":
        is_here = reward.response_id is not None and has_response(span, reward.response_id)
        rollout = _rollout(span.attributes) if is_reward_span(span) else OWN_SPAN
        address = msgspec.structs.replace(rollout, response_id=None if is_here else reward.response_id)
    return AddressedReward(origin=span.key, reward=reward, address=address)


def _of_log(reward: RecordedReward | BadReward, log: LogRecord) -> AddressedReward | BadReward:
    """Address the reward of a log record. Order among equal times is unknown, so its content decides."""
    if isinstance(reward, BadReward):
        return reward
    digest = blake2b(msgspec.msgpack.encode(log, order="deterministic"), digest_size=7).digest()
    positioned = msgspec.structs.replace(reward, position=_FIRST_LOG_POSITION + int.from_bytes(digest))
    is_of_its_span = reward.response_id is None and log.span_id
    rollout = OWN_SPAN if is_of_its_span else _rollout(log.attributes)
    address = msgspec.structs.replace(rollout, response_id=reward.response_id)
    return AddressedReward(origin=log.key, reward=positioned, address=address)


def _links(span: Span) -> tuple[SpanKey, ...]:
    """The spans that a span's rewards are for; what a call or a rollout links to only explains where that came from."""
    if not span.links or role_of(span) == "inference" or _is_rollout(span):
        return ()
    return tuple(dict.fromkeys((link.trace_id, link.span_id) for link in span.links))


def _is_rollout(span: Span) -> bool:
    """Whether the span is a rollout's own, as far as the span alone shows."""
    if declared_id(span) is not None and (is_marked_root(span) or span.parent_span_id is None):
        return True
    return span.parent_span_id is None and not is_reward_span(span) and role_of(span) == "agent"


def _rollout(named: Attributes) -> RewardAddress:
    """The rollout that attributes name."""
    rollout_id, trace_id = named.get(attributes.ROLLOUT_ID), named.get(attributes.ROLLOUT_TRACE_ID)
    if rollout_id is None or rollout_id == "":
        return OWN_SPAN
    return RewardAddress(
        rollout_id=str(rollout_id),
        trace_id=str(trace_id) if trace_id else None,
        attempt=integer(named.get(attributes.ROLLOUT_ATTEMPT)),
        step=integer(named.get(attributes.STEP_INDEX)),
    )


def _size(reward: RecordedReward | BadReward) -> int:
    if isinstance(reward, BadReward):
        return _REWARD_OVERHEAD_BYTES
    texts = (reward.name, reward.label, reward.explanation)
    return _REWARD_OVERHEAD_BYTES + sum(len(text) for text in texts if text is not None)
