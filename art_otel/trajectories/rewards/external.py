"""ExternalReward: a reward on its way from the trace where it stands to the one that it is for.

Invariant: it holds all that is needed to join it there by key, so that the spans that give it stay where they are. Who
delivers rewards gives each to the trace that it is for, also where that is the trace in which it stands; what cannot be
delivered goes back there with the reason.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from art_otel.conventions import BadReward
from art_otel.spans import LogRecord, Span, SpanKey
from art_otel.trajectories.rewards.address import HERE, AddressedReward, RewardAddress, addressed_rewards
from art_otel.trajectories.rewards.undeliverable import OUTSIDE

RewardKey: TypeAlias = tuple[SpanKey, int]
"""What a reward is known by over repeated deliveries: the span on which it stands, and its position there."""


class ExternalReward(AddressedReward, frozen=True, kw_only=True, gc=False):
    """A copy of a reward.

    `trace_id` is the trace that it is delivered to: empty until somebody found it. `undeliverable` says why it goes
    back to the trace where it stands.
    """

    trace_id: str = ""
    undeliverable: str | None = None

    @property
    def key(self) -> RewardKey:
        """What the reward is known by."""
        return (self.origin, self.reward.position)


def external_rewards(record: Span | LogRecord) -> Iterator[ExternalReward]:
    """Copies of the rewards that may be for another trace than the record's, one for each that its span links to."""
    for given in addressed_rewards(record):
        if isinstance(given, BadReward):
            continue
        origin, reward, links = given.origin, given.reward, given.address.links
        if not any(origin):
            reason = OUTSIDE if given.address == HERE else None
            yield ExternalReward(origin=origin, reward=reward, address=given.address, undeliverable=reason)
        elif given.address != HERE and not links:
            yield ExternalReward(origin=origin, reward=reward, address=given.address)
        for trace_id in dict.fromkeys(trace_id for trace_id, _ in links if trace_id != record.trace_id):
            there = RewardAddress(links=tuple(key for key in links if key[0] == trace_id))
            yield ExternalReward(origin=origin, reward=reward, address=there, trace_id=trace_id)


def distinct(rewards: Iterable[ExternalReward]) -> list[ExternalReward]:
    """Each reward for each linked trace once, in an order that no delivery changes; the richest of its copies stays."""
    copies: dict[tuple[RewardKey, str], list[ExternalReward]] = {}
    for reward in rewards:
        linked_trace = reward.trace_id if reward.address.links else ""
        copies.setdefault((reward.key, linked_trace), []).append(reward)
    linking = {key for key, linked_trace in copies if linked_trace}  # a store may have lost the links of other copies
    kept = sorted((key, linked_trace) for key, linked_trace in copies if linked_trace or key not in linking)
    return [max(copies[key], key=_richness) for key in kept]


def _richness(reward: ExternalReward) -> tuple[int, bool, int, bytes]:
    """A store that keeps less may have lost some links, and rounded times down."""
    encoded = msgspec.msgpack.encode(reward, order="deterministic")
    return len(reward.address.links), reward.undeliverable is None, reward.reward.time_ns, encoded
