"""Link: which traces share a rollout id, and where rewards go that name one.

Invariant: all that names a rollout id is in one link region, so the regions can be linked apart. A reward goes to a
trace of its rollout; without one, and with a response id, it waits to be probed for; else it goes back to its own trace
as undeliverable.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from art_otel.engines.incremental.rounds import Round
from art_otel.engines.shards import (
    NOTHING,
    REWARDS,
    Arrival,
    Membership,
    Shards,
    ShuffleCatalog,
    Shuffled,
    ShuffleWriter,
)
from art_otel.trajectories import NO_ROLLOUT, ExternalReward

_OF_TRACE: Final = re.compile("([0-9a-f]{32})(?:-[0-9a-f]{16})?")
"""The id of a rollout that declares none: its trace id, for further roots of the trace with the span id."""


class LinkTask(msgspec.Struct, frozen=True, kw_only=True):
    """Link regions of these files, and of those that are `kept` from earlier rounds."""

    regions: tuple[int, ...]
    files: ShuffleCatalog
    kept: ShuffleCatalog
    round: Round | None = None
    slots: int
    scratch: str


class LinkSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a link task found: `edges` are pairs of traces that share a rollout id, `shuffled` has the rewards.

    `again` has rewards of earlier rounds.
    """

    edges: bytes
    shuffled: Shuffled
    again: Shuffled = NOTHING

    def is_intact(self) -> bool:
        """Whether what it names is there as it was written."""
        return self.shuffled.is_intact() and self.again.is_intact()


def link(task: LinkTask) -> LinkSummary:
    """Link the traces of each rollout id in these regions, and deliver the rewards that name one."""
    first_traces: dict[str, str] = {}
    edges: set[bytes] = set()
    rewards: list[ExternalReward] = []
    earlier: list[ExternalReward] = []
    for catalog, taken in ((task.kept, earlier), (task.files, rewards)):
        for record in Shards(catalog.files_with(task.regions), task.regions).records(task.regions):
            if isinstance(record, Membership):
                first = first_traces.setdefault(record.rollout_id, record.trace_id)
                if first != record.trace_id:
                    edges.add(bytes.fromhex(first + record.trace_id))
            elif isinstance(record, ExternalReward):
                taken.append(record)
    return LinkSummary(
        edges=b"".join(sorted(edges)),
        shuffled=_delivered(rewards, first_traces, task, task.round),
        again=_delivered(earlier, first_traces, task, None),
    )


def _delivered(
    rewards: Iterable[ExternalReward], first_traces: Mapping[str, str], task: LinkTask, round_: Round | None
) -> Shuffled:
    """Deliver the rewards. In a round they arrive in it."""
    writer = ShuffleWriter(task.scratch, task.slots)
    for reward in rewards:
        rollout_id = reward.address.rollout_id or ""
        trace_id = first_traces.get(rollout_id) or _trace_in(rollout_id)
        if trace_id is None and reward.address.response_id is not None:
            writer.put(REWARDS, reward)
        elif trace_id is None:
            writer.add(msgspec.structs.replace(reward, trace_id=reward.origin[0], undeliverable=NO_ROLLOUT))
        else:
            writer.add(msgspec.structs.replace(reward, trace_id=trace_id))
            if round_ is not None:
                writer.add(Arrival(trace_id, round_.number, 0))
    return writer.finish()


def _trace_in(rollout_id: str) -> str | None:
    named = _OF_TRACE.fullmatch(rollout_id)
    return None if named is None else named[1]
