"""Kept: what a dataset holds for later rounds: the records of rollouts that may go on, and what was made of them.

Invariant: the files that the manifest names are all that a round needs besides its inputs. They are never changed; a
round adds a tier of them. Tiers that are not much larger than those behind them are merged, so their number grows with
the logarithm of the records.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.shards import Shuffled
from art_otel.errors import StoreError
from art_otel.sources.files.dataset_files import KEPT_PREFIX
from art_otel.store import Manifest
from art_otel.store.commit import KeptFile

_FACTOR: Final = 2
"""A tier is merged with those behind it when it has not more bytes than so many times theirs."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Files that one or several rounds wrote. While they lie in the dataset, their locations are names in it."""

    records: tuple[Shuffled, ...] = ()
    outcomes: tuple[Shuffled, ...] = ()

    @property
    def files(self) -> tuple[Shuffled, ...]:
        """All files."""
        return (*self.records, *self.outcomes)

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(one.file.size for one in self.files if one.file is not None)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Tiers, the oldest first.

    `round` is the number of the last round, `horizon` the time before which traces are closed (ns). `open_since` says,
    for each slot in which something waits, when something last came of it. The settings are those of every round.
    """

    slots: int
    rollout_spans: tuple[str, ...]
    rollout_traces: bool
    round: int = 0
    horizon: int = 0
    open_since: dict[int, int] = {}
    tiers: tuple[Tier, ...] = ()

    @property
    def records(self) -> tuple[Shuffled, ...]:
        """All files of records."""
        return tuple(one for tier in self.tiers for one in tier.records)

    @property
    def outcomes(self) -> tuple[Shuffled, ...]:
        """All files of outcomes."""
        return tuple(one for tier in self.tiers for one in tier.outcomes)


_DECODER: Final = msgspec.msgpack.Decoder(Kept)


def read_kept(out: str, manifest: Manifest | None) -> Kept | None:
    """What the dataset of this manifest keeps, with locations; None where it keeps nothing."""
    if manifest is None or not manifest.kept:
        return None
    location = storage.join(out, manifest.kept[0])
    data = storage.read(location)
    if _index_name(data) != manifest.kept[0]:
        raise StoreError(f"{storage.shown(location)}: is not as it was written; convert everything anew")
    kept = _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))
    return _at(kept, lambda name: storage.join(out, name))


def stage_kept(out: str, kept: Kept, scratch: str) -> tuple[KeptFile, ...]:
    """Write the index of what is kept, and say which files become files of the dataset; the index is the first."""
    staged: dict[str, KeptFile] = {}
    for one in (one for tier in kept.tiers for one in tier.files):
        if one.file is not None:
            name = _name_of(one.file.location)
            is_there = one.file.location == storage.join(out, name)
            staged[name] = KeptFile(name, one.file.size, None if is_there else one.file.location)
    data = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(_at(kept, _name_of), order="deterministic"))
    location = storage.join(scratch, _index_name(data))
    storage.write(location, data)
    return (KeptFile(_index_name(data), len(data), location), *staged.values())


def tiers_to_merge(tiers: Sequence[Tier]) -> int:
    """How many of the last tiers are to become one."""
    behind = [*accumulate(reversed([tier.bytes for tier in tiers]))]
    count = 1
    for number, tier in enumerate(reversed(tiers)):
        if number and tier.bytes <= _FACTOR * behind[number - 1]:
            count = number + 1
    return count


def _at(kept: Kept, location_of: Callable[[str], str]) -> Kept:
    def moved(files: Iterable[Shuffled]) -> tuple[Shuffled, ...]:
        return tuple(
            one
            if one.file is None
            else msgspec.structs.replace(
                one, file=msgspec.structs.replace(one.file, location=location_of(one.file.location))
            )
            for one in files
        )

    tiers = (Tier(records=moved(tier.records), outcomes=moved(tier.outcomes)) for tier in kept.tiers)
    return msgspec.structs.replace(kept, tiers=tuple(tiers))


def _name_of(location: str) -> str:
    """The name that a shuffle file has in the dataset."""
    name = Path(location.partition("?")[0] if storage.is_url(location) else location).name
    return name if name.startswith(KEPT_PREFIX) else f"{KEPT_PREFIX}{name.removeprefix('shuffle-')}"


def _index_name(data: bytes) -> str:
    return f"{KEPT_PREFIX}index-{hashlib.sha256(data).hexdigest()[:32]}"
