"""ExternalReward: a reward pending delivery, from the trace of its span to the trace of its target.

Invariant: it holds all that is needed to resolve its target there, so that the reward's span is not moved. The one who
delivers rewards gives each to the trace of its target, also when that is its own trace; one that cannot be delivered is
returned to its own trace as undeliverable, with the reason.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from art_otel.conventions import BadReward
from art_otel.spans import LogRecord, Span, SpanKey
from art_otel.trajectories.rewards.address import OWN_SPAN, AddressedReward, RewardAddress, addressed_rewards
from art_otel.trajectories.rewards.undeliverable import OUTSIDE

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
        """What identifies the reward."""
        return (self.origin, self.reward.position)


def external_rewards(record: Span | LogRecord) -> Iterable[ExternalReward]:
    """Copy the rewards whose target may be in another trace than the record, once per trace that the span links to."""
    addressed = addressed_rewards(record)
    return _external(addressed, record.trace_id) if addressed else ()


def _external(rewards: Iterable[AddressedReward | BadReward], own_trace: str) -> Iterator[ExternalReward]:
    for addressed in rewards:
        if isinstance(addressed, BadReward):
            continue
        origin, reward, links = addressed.origin, addressed.reward, addressed.address.links
        if not any(origin):
            reason = OUTSIDE if addressed.address == OWN_SPAN else None
            yield ExternalReward(origin=origin, reward=reward, address=addressed.address, undeliverable=reason)
        elif addressed.address != OWN_SPAN and not links:
            yield ExternalReward(origin=origin, reward=reward, address=addressed.address)
        for trace_id in dict.fromkeys(trace_id for trace_id, _ in links if trace_id != own_trace):
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
