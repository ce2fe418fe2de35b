"""RewardAddress: what a reward is for, and why it may not reach it.

Invariant: the address is read from the span or log record that gives the reward and from nothing else, so everybody
who sees the record sees the same address. The first that is named counts: the spans that its span links to, a response
id, a rollout. A reward that names none of these is for the span that carries it. Each reward is delivered to its
target, or is undeliverable for one of the reasons below.

An external reward is pending delivery, from the trace of its span to the trace of its target. It holds all that is
needed to resolve its target there, so that the reward's span is not moved. The one who delivers rewards gives each to
the trace of its target, also when that is its own trace; one that cannot be delivered is returned to its own trace as
undeliverable, with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.conventions import (
    BadReward,
    RecordedReward,
    has_response,
    integer,
    may_give_to_others,
    rewards_of,
    rewards_of_log,
    role_of,
)
from art_otel.spans import Attributes, LogRecord, Span, SpanKey
from art_otel.trajectories.span_context import declared_id, is_marked_root, is_reward_span

NO_SPAN: Final = "linked span not in the sources"
NO_RESPONSE: Final = "response not in the sources"
SEVERAL_CALLS: Final = "response of several calls"
NO_ROLLOUT: Final = "rollout not in the sources"
SEVERAL_ROLLOUTS: Final = "several rollouts with this id"
OUTSIDE: Final = "outside every rollout"
NO_PART: Final = "no such choice or tokens"
OVER_A_LIMIT: Final = "rollout over a limit"
TOO_LATE: Final = "too late"

_CONVERT_TOGETHER: Final = "convert the spans that were judged together with the rewards"

ADVICE: Final[Mapping[str, str]] = {
    NO_SPAN: _CONVERT_TOGETHER,
    NO_RESPONSE: f"{_CONVERT_TOGETHER}; a response is found where its call recorded gen_ai.response.id",
    SEVERAL_CALLS: "servers repeat response ids: link the reward to the call's span, or name its rollout too",
    NO_ROLLOUT: _CONVERT_TOGETHER,
    SEVERAL_ROLLOUTS: "give target=trajectory, or art.rollout.trace_id or art.rollout.attempt",
    OUTSIDE: "what they judge is in no rollout: link them to a span of one, or name art.rollout.id",
    NO_PART: "the call has no such choice or not so many tokens: positions count from 0, the end is exclusive",
    OVER_A_LIMIT: "raise the limits of a rollout",
    TOO_LATE: "nothing came of it for --retain, or it was converted without --incremental: convert everything anew",
}
"""What to do, by reason."""

MAX_REWARD_BYTES: Final = 64 << 20
"""Bytes that the rewards of one span may be, once for each of several spans that it links to."""

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
    address = RewardAddress(links=links) if links else OWN_SPAN
    is_for_others = reward.response_id is not None or is_reward_span(span)  # it may be, and most are not
    if not links and is_for_others and role_of(span) != "inference":
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


RewardKey: TypeAlias = tuple[SpanKey, int]
"""What identifies a reward over repeated deliveries: the span that carries it, and its position there."""


class ExternalReward(AddressedReward, frozen=True, kw_only=True, gc=False):
    """A copy of a reward.

    `trace_id` is the trace that it is delivered to: empty until that is known. `undeliverable` is the reason why it is
    returned to the trace of its span.
    """

    trace_id: str = ""
    undeliverable: str | None = None

    @property
    def key(self) -> RewardKey:
        """Where the reward was given and its position there: copies with one key are one reward."""
        return (self.origin, self.reward.position)


def external_rewards(record: Span | LogRecord) -> Iterator[ExternalReward]:
    """Copy the rewards whose target may be in another trace than the record, once per trace that the span links to."""
    if isinstance(record, Span) and not record.links and not may_give_to_others(record):
        return  # as of most spans
    for addressed in addressed_rewards(record):
        if isinstance(addressed, BadReward):
            continue
        origin, reward, links = addressed.origin, addressed.reward, addressed.address.links
        if not any(origin):
            reason = OUTSIDE if addressed.address == OWN_SPAN else None
            yield ExternalReward(origin=origin, reward=reward, address=addressed.address, undeliverable=reason)
        elif addressed.address != OWN_SPAN and not links:
            yield ExternalReward(origin=origin, reward=reward, address=addressed.address)
        for trace_id in dict.fromkeys(trace_id for trace_id, _ in links if trace_id != record.trace_id):
            there = RewardAddress(links=tuple(key for key in links if key[0] == trace_id))
            yield ExternalReward(origin=origin, reward=reward, address=there, trace_id=trace_id)


def distinct(rewards: Iterable[ExternalReward]) -> list[ExternalReward]:
    """Keep the richest copy of each reward for each linked trace, in an order that no delivery changes."""
    copies: dict[tuple[RewardKey, str], list[ExternalReward]] = {}
    for reward in rewards:
        linked_trace = reward.trace_id if reward.address.links else ""
        copies.setdefault((reward.key, linked_trace), []).append(reward)
    linking = {key for key, linked_trace in copies if linked_trace}  # a store may have lost the links of other copies
    kept = sorted((key, linked_trace) for key, linked_trace in copies if linked_trace or key not in linking)
    return [max(copies[key], key=_richness) for key in kept]


def _richness(reward: ExternalReward) -> tuple[int, bool, int, str, bytes]:
    """The key of the richest copy: a store that keeps less may have lost some links, and rounded times down."""
    encoded = msgspec.msgpack.encode(reward, order="deterministic")
    recorded = reward.reward
    return len(reward.address.links), reward.undeliverable is None, recorded.time_ns, recorded.order, encoded
