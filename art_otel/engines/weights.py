"""Weights: how much there is of each trace in a bucket, found without decoding its records.

Invariant: a trace weighs the same however often and in whichever order its records were delivered, and about what
memory needs for it: each span counts once, and so does each origin, which its spans share.
"""

from collections import defaultdict
from itertools import chain
from typing import Final

import msgspec

from art_otel.engines.buckets import BEHIND_ORIGIN, DAMAGE, LOG, ORIGIN, REWARD, Content, entries
from art_otel.spans import Quarantined
from art_otel.trajectories import ExternalReward


class Weight(msgspec.Struct, kw_only=True):
    """How much there is of some traces.

    `spans` and `logs` count deliveries; `different` spans and their `bytes` count each once, however often it came, and
    each origin of a trace once.
    """

    spans: int = 0
    logs: int = 0
    different: int = 0
    bytes: int = 0

    def __add__(self, other: "Weight") -> "Weight":
        """Both together."""
        return Weight(
            spans=self.spans + other.spans,
            logs=self.logs + other.logs,
            different=self.different + other.different,
            bytes=self.bytes + other.bytes,
        )


class _Identified(msgspec.Struct, array_like=True):
    """The first two fields of a span, and of a log record."""

    trace_id: str
    span_id: str


_IDENTIFIED: Final = msgspec.msgpack.Decoder(_Identified)
_WEIGHTLESS: Final = {
    DAMAGE: msgspec.msgpack.Decoder(Quarantined),
    REWARD: msgspec.msgpack.Decoder(ExternalReward),
}
"""Damages and external rewards, which make no rollout too large."""


class _Seen(msgspec.Struct, kw_only=True):
    """What was met of a trace: the bytes of spans, logs and origins by their hashes."""

    spans: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    logs: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    origins: dict[int, int] = msgspec.field(default_factory=dict[int, int])


def weigh_traces(content: Content, most: int) -> dict[str, Weight]:
    """How much there is of each trace, found with memory for the ids of `most` spans of each.

    Damages and rewards from elsewhere weigh nothing. Spans beyond so many count as different.
    """
    weights: dict[str, Weight] = defaultdict(Weight)
    seen: dict[str, _Seen] = defaultdict(_Seen)
    origin = (0, 0)
    for mark, _, encoded, size in chain.from_iterable(map(entries, content)):
        if mark == ORIGIN:
            origin = hash(encoded), size
            continue
        if mark in _WEIGHTLESS:
            _ = weights[str(_WEIGHTLESS[mark].decode(encoded).trace_id)]
            continue
        ids = _IDENTIFIED.decode(encoded)
        weight, known = weights[ids.trace_id], seen[ids.trace_id]
        if mark == LOG:
            weight.logs += 1
            weight.bytes += _added(known.logs, hash(encoded), size, most)
            continue
        weight.spans += 1
        weight.different += hash(ids.span_id) not in known.spans
        weight.bytes += _added(known.spans, hash(ids.span_id), size, most)
        if mark == BEHIND_ORIGIN:
            weight.bytes += _added(known.origins, *origin, most)
    return dict(weights)


def _added(sizes: dict[int, int], key: int, size: int, most: int) -> int:
    """By how much a thing is larger than what was met of it, which is remembered of `most` things."""
    before = sizes.get(key, 0)
    if key in sizes or len(sizes) <= most:
        sizes[key] = max(size, before)
    return max(0, size - before)
