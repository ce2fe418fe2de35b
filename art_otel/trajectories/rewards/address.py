"""RewardAddress: whom a reward is for.

Invariant: the address is read from the span or log record that gives the reward and from nothing else, so everybody
who sees the record sees the same address. The first that is named counts: the spans that its span links to, a response
id, a rollout. A reward that names none of these is for what it stands on.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.conventions import BadReward, GivenReward, integer, is_own_response, rewards_of, rewards_of_log, role_of
from art_otel.spans import Attributes, LogRecord, Span, SpanKey
from art_otel.trajectories.limits import MAX_REWARD_BYTES
from art_otel.trajectories.rollouts.marks import declared_id, is_marked_root, is_reward_span

_BYTES: Final = 100
"""What a reward takes besides its texts."""

_BEHIND_ATTRIBUTES: Final = 1 << 32
"""The position of the first reward in log records."""


class RewardAddress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whom a reward is for; nothing at all: for what it stands on.

    `rollout_id` beside a response id says in which rollout the response is. `trace_id` and `attempt` tell the runs of
    one rollout id apart, `step` names a step of the rollout by its index.
    """

    links: tuple[SpanKey, ...] = ()
    response_id: str | None = None
    rollout_id: str | None = None
    trace_id: str | None = None
    attempt: int | None = None
    step: int | None = None


HERE: Final = RewardAddress()


class AddressedReward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reward, the span on which it stands (two empty ids: none), and whom it is for."""

    origin: SpanKey
    reward: GivenReward
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


def _of_span(reward: GivenReward | BadReward, span: Span, links: tuple[SpanKey, ...]) -> AddressedReward | BadReward:
    if isinstance(reward, BadReward):
        return reward
    address = RewardAddress(links=links)
    if not links and role_of(span) != "inference":
        is_own = reward.response_id is not None and is_own_response(span, reward.response_id)
        rollout = _rollout(span.attributes) if is_reward_span(span) else HERE
        address = msgspec.structs.replace(rollout, response_id=None if is_own else reward.response_id)
    return AddressedReward(origin=span.key, reward=reward, address=address)


def _of_log(reward: GivenReward | BadReward, log: LogRecord) -> AddressedReward | BadReward:
    """The reward of a log record; how it stands to others of its time nobody can know, so its content decides."""
    if isinstance(reward, BadReward):
        return reward
    digest = blake2b(msgspec.msgpack.encode(log, order="deterministic"), digest_size=7).digest()
    positioned = msgspec.structs.replace(reward, position=_BEHIND_ATTRIBUTES + int.from_bytes(digest))
    is_of_its_span = reward.response_id is None and log.span_id
    rollout = HERE if is_of_its_span else _rollout(log.attributes)
    address = msgspec.structs.replace(rollout, response_id=reward.response_id)
    return AddressedReward(origin=log.key, reward=positioned, address=address)


def _links(span: Span) -> tuple[SpanKey, ...]:
    """The spans that a span's rewards are for; what a call or a rollout links to only explains where that came from."""
    if not span.links or role_of(span) == "inference" or _is_rollout(span):
        return ()
    return tuple(dict.fromkeys((link.trace_id, link.span_id) for link in span.links))


def _is_rollout(span: Span) -> bool:
    """Whether the span is a rollout's own, as far as it tells by itself."""
    if declared_id(span) is not None and (is_marked_root(span) or span.parent_span_id is None):
        return True
    return span.parent_span_id is None and not is_reward_span(span) and role_of(span) == "agent"


def _rollout(given: Attributes) -> RewardAddress:
    """The rollout that attributes name."""
    rollout_id, trace_id = given.get(attributes.ROLLOUT_ID), given.get(attributes.ROLLOUT_TRACE_ID)
    if rollout_id is None or rollout_id == "":
        return HERE
    return RewardAddress(
        rollout_id=str(rollout_id),
        trace_id=str(trace_id) if trace_id else None,
        attempt=integer(given.get(attributes.ROLLOUT_ATTEMPT)),
        step=integer(given.get(attributes.STEP_INDEX)),
    )


def _size(reward: GivenReward | BadReward) -> int:
    if isinstance(reward, BadReward):
        return _BYTES
    texts = (reward.name, reward.label, reward.explanation, reward.comparison)
    return _BYTES + sum(len(text) for text in texts if text is not None)
