"""RewardAddress: whom a reward is for.

Invariant: the address is read from the span or log record that gives the reward and from nothing else, so everybody
who sees the record sees the same address. The first that is named counts: the spans that its span links to, a response
id, a rollout. A reward that names none of these is for what it stands on.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from art_otel import attributes
from art_otel.conventions import (
    BadReward,
    GivenReward,
    integer,
    is_own_response,
    rewards_of,
    rewards_of_log,
    role_of,
)
from art_otel.spans import Attributes, LogRecord, Span, SpanKey
from art_otel.trajectories.limits import MAX_REWARD_BYTES
from art_otel.trajectories.rollouts.assignment import declared_id, is_marked, is_reward_span

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


class AddressedReward(NamedTuple):
    """A reward and whom it is for."""

    reward: GivenReward
    address: RewardAddress


def addressed_rewards(span: Span) -> Iterator[AddressedReward | BadReward]:
    """The rewards that a span gives."""
    rewards = rewards_of(span)
    if not rewards:
        return
    links = _links(span)
    if len(links) > 1 and (size := sum(map(_size, rewards)) * len(links)) > MAX_REWARD_BYTES:
        detail = f"{len(rewards)} rewards for {len(links)} spans each are {size} bytes: give them on several spans"
        yield BadReward(name=rewards[0].name, detail=detail)
        return
    for reward in rewards:
        yield reward if isinstance(reward, BadReward) else AddressedReward(reward, _address(reward, span, links))


def addressed_rewards_of_log(log: LogRecord) -> Iterator[AddressedReward | BadReward]:
    """The reward that a log record gives, if any. Where it stands among others of its time nobody can know."""
    for reward in rewards_of_log(log):
        if isinstance(reward, BadReward):
            yield reward
            continue
        digest = blake2b(msgspec.msgpack.encode(log, order="deterministic"), digest_size=7).digest()
        placed = msgspec.structs.replace(reward, position=_BEHIND_ATTRIBUTES + int.from_bytes(digest))
        if reward.response_id is None and log.span_id:
            yield AddressedReward(placed, HERE)
        else:
            rollout = _rollout(log.attributes)
            yield AddressedReward(placed, msgspec.structs.replace(rollout, response_id=reward.response_id))


def _links(span: Span) -> tuple[SpanKey, ...]:
    """The spans whose rewards a span gives; what a call or a rollout links to only explains where that came from."""
    if not span.links or role_of(span) == "inference" or _is_rollout(span):
        return ()
    return tuple(dict.fromkeys((link.trace_id, link.span_id) for link in span.links))


def _is_rollout(span: Span) -> bool:
    """Whether the span is a rollout's own, as far as it tells by itself."""
    if declared_id(span) is not None and (is_marked(span) or span.parent_span_id is None):
        return True
    return span.parent_span_id is None and not is_reward_span(span) and role_of(span) == "agent"


def _address(reward: GivenReward, span: Span, links: tuple[SpanKey, ...]) -> RewardAddress:
    if role_of(span) == "inference":
        return HERE
    if links:
        return RewardAddress(links=links)
    rollout = _rollout(span.attributes) if is_reward_span(span) else HERE
    if reward.response_id is None or is_own_response(span, reward.response_id):
        return rollout
    return msgspec.structs.replace(rollout, response_id=reward.response_id)


def _rollout(given: Attributes) -> RewardAddress:
    """The rollout that attributes name."""
    rollout_id = given.get(attributes.ROLLOUT_ID)
    if rollout_id is None or rollout_id == "":
        return HERE
    trace_id = given.get(attributes.ROLLOUT_TRACE_ID)
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
