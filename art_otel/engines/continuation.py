"""Continuation: what an incremental conversion takes up of those before it, and what it leaves for the next.

Invariant: a round has the settings of the rounds before it, or is refused by name. A dataset that keeps nothing, as
after a full conversion, has closed traces only: their rows stay as they are.
"""

from collections.abc import Iterable, Sequence
from time import time_ns

import msgspec

from art_otel import storage
from art_otel.engines.assemble import AssembledPart
from art_otel.engines.kept import Kept, Settings, Tier, count_to_merge, merge_tiers, read_kept, stage_kept
from art_otel.engines.local import Engine
from art_otel.engines.placement import Placement
from art_otel.engines.plan import Sizes
from art_otel.engines.rounds import Outcome, Round
from art_otel.engines.shuffle import ROLLOUT_REGIONS, Membership, Shuffle, ShuffleWriter, region_of
from art_otel.engines.workspace import Workspace
from art_otel.errors import UsageError
from art_otel.store import Manifest
from art_otel.store.commit import Addition
from art_otel.store.manifest import LedgerEntry


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When rollouts are given and closed, in seconds; `now` (ns) where it is not the clock that says it."""

    grace: float = 15 * 60.0
    retain: float = 30 * 24 * 3600.0
    now: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for times that do not fit."""
        if not 0 <= self.grace <= self.retain:
            raise UsageError(
                f"--grace {self.grace:g}s, --retain {self.retain:g}s: what waits is kept, so retain at least the grace"
            )


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The dataset that a round adds to: its manifest, None where there is none, and what it keeps."""

    manifest: Manifest | None
    kept: Kept

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What of each input was read."""
        return () if self.manifest is None else self.manifest.ledger

    @property
    def run(self) -> str | None:
        """The run that committed it."""
        return None if self.manifest is None else self.manifest.run

    def due(self, times: Times) -> frozenset[int]:
        """The slots in which something waited for the grace."""
        before = (time_ns() if times.now is None else times.now) - int(times.grace * 1e9)
        return frozenset(slot for slot, changed in self.kept.open_since.items() if changed <= before)


def read_earlier(out: str, manifest: Manifest | None, settings: Settings) -> Earlier:
    """The dataset of this manifest, to be added to. Raises UsageError where it was made with other settings."""
    kept = read_kept(out, manifest) or Kept(settings=settings)
    before = kept.settings
    globs = " ".join(f"--rollout-span {glob!r}" for glob in before.rollout_spans)
    for name, made in {
        "slots": f"with {before.slots} slots",
        "rollout_spans": f"with {globs}" if globs else "without --rollout-span",
        "rollout_traces": f"{'with' if before.rollout_traces else 'without'} --rollout-traces",
    }.items():
        if getattr(before, name) != getattr(settings, name):
            raise UsageError(
                f"{storage.shown(out)}: was converted {made}, and its rollouts may go on; convert with the same"
                " settings, or everything anew into another folder"
            )
    return Earlier(manifest=manifest, kept=kept)


class Continuation:
    """A round, what it takes up, and what it decided so far.

    `ledger` says what of each input was read before. `records` and `outcomes` are what earlier rounds kept and made of
    it. `next_part` is the number of the first part that is added.
    """

    def __init__(self, out: str, earlier: Earlier, times: Times, workspace: Workspace) -> None:
        manifest, kept, now = earlier.manifest, earlier.kept, _started(workspace.folder, times)
        self.round = Round(
            number=kept.round + 1,
            now=now,
            grace=int(times.grace * 1e9),
            horizon=max(kept.horizon, now - int(times.retain * 1e9)),
        )
        self.next_part = 0 if manifest is None else manifest.next_number
        self.ledger = earlier.ledger
        self._earlier = earlier
        self._due = earlier.due(msgspec.structs.replace(times, now=now))
        self._tiers = kept.tiers_in(out)
        if manifest is not None and not manifest.kept:
            self._tiers = [_closed(out, workspace.folder, kept.settings.slots)]
        self.records = Shuffle.union(tier.records for tier in self._tiers)
        self.outcomes = Shuffle.union(tier.outcomes for tier in self._tiers)
        self._touched = frozenset[int]()
        self._new_outcomes = Shuffle()
        self._open_since: dict[int, int] = {}
        self._superseded = {} if manifest is None else {name: set(rows) for name, rows in manifest.superseded.items()}

    def touch(self, slots: Iterable[int], placement: Placement, leaving: Sequence[int]) -> frozenset[int]:
        """Say in which slots something came, and get those that are assembled: also where traces of them go."""
        touched = self._due | {slot for slot in slots if slot >= 0}
        self._touched = touched.union(placement.leaving(touched.intersection(leaving)).values())
        return self._touched

    def take(self, part: AssembledPart) -> None:
        """Take note of what a task decided."""
        self._new_outcomes.add(part.outcomes)
        self._open_since |= part.open_since
        for name, row in part.superseded:
            self._superseded.setdefault(name, set()).add(row)

    def addition(self, read: Shuffle, workspace: Workspace, engine: Engine, sizes: Sizes) -> Addition:
        """What the dataset has besides the parts of this round."""
        tiers = [*self._tiers, Tier(read, self._new_outcomes)]
        if (count := count_to_merge(tiers)) > 1:
            horizon = self.round.horizon if count == len(tiers) else None
            tiers[-count:] = [merge_tiers(workspace, engine, sizes, tiers[-count:], horizon=horizon)]
        manifest, before = self._earlier.manifest, self._earlier.kept
        waiting = {slot: changed for slot, changed in before.open_since.items() if slot not in self._touched}
        kept = Kept(
            settings=before.settings,
            round=self.round.number,
            horizon=self.round.horizon,
            open_since=waiting | self._open_since,
        )
        return Addition(
            parts=() if manifest is None else manifest.parts,
            superseded={name: tuple(sorted(rows)) for name, rows in self._superseded.items()},
            kept=stage_kept(kept, tiers, workspace.folder),
        )


def _started(scratch: str, times: Times) -> int:
    """When the round began: one that is taken up again goes on at its time, so that its tasks are the same."""
    location = storage.join(scratch, "started")
    if storage.size_of(location) is not None:
        return int(storage.read(location))
    now = time_ns() if times.now is None else times.now
    storage.write(location, str(now).encode())
    return now


def _closed(out: str, scratch: str, slots: int) -> Tier:
    """The rows of a dataset that keeps nothing, as closed traces."""
    from art_otel.store import read_keys, row_groups  # noqa: PLC0415 # loads pyarrow, and is needed once

    records, outcomes = (ShuffleWriter(scratch, slots) for _ in range(2))
    for keys in read_keys(row_groups(out)):
        for rollout_id, _, trace_id in keys:
            outcomes.add(Outcome(trace_id, 0, 0, "closed"))
            records.put(region_of(rollout_id, ROLLOUT_REGIONS), Membership(rollout_id, trace_id))
    return Tier(Shuffle([records.finish()]), Shuffle([outcomes.finish()]))
