"""Kept: what a dataset holds for later rounds: the records of rollouts that may go on, and what was made of them.

Invariant: the files that the manifest names are all that a round needs besides its inputs, and they are never changed.
A round adds a tier of them. Tiers that are not much larger than those behind them are merged, so their number grows
with the logarithm of the records.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.shards import Catalogued, Shuffle, ShuffleFile
from art_otel.errors import StoreError
from art_otel.sources.files.dataset_files import KEPT_PREFIX
from art_otel.store import Manifest
from art_otel.store.dataset.commit import KeptFile

_FACTOR: Final = 2
"""A tier is merged with those behind it when it has not more bytes than so many times theirs."""


class Tier(NamedTuple):
    """Files that one or several rounds wrote."""

    records: Shuffle
    outcomes: Shuffle

    @property
    def files(self) -> list[ShuffleFile]:
        """All files."""
        return [*self.records.files, *self.outcomes.files]

    @property
    def bytes(self) -> int:
        """How large they are."""
        return sum(file.size for file in self.files)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every round has in common."""

    slots: int
    rollout_spans: tuple[str, ...]
    rollout_traces: bool


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The index of what is kept: the records and the outcomes of each tier, the oldest first.

    `round` is the number of the last round, `horizon` the time before which traces are closed (ns). `open_since` says,
    for each slot in which something waits, when something last came of it.
    """

    settings: Settings
    round: int = 0
    horizon: int = 0
    open_since: dict[int, int] = {}
    tiers: tuple[tuple[Catalogued, Catalogued], ...] = ()

    def tiers_in(self, out: str) -> list[Tier]:
        """The tiers, in the dataset in this folder."""
        return [Tier(Shuffle.of(records, out), Shuffle.of(outcomes, out)) for records, outcomes in self.tiers]


_DECODER: Final = msgspec.msgpack.Decoder(Kept)


def read_kept(out: str, manifest: Manifest | None) -> Kept | None:
    """What the dataset of this manifest keeps; None where it keeps nothing."""
    if manifest is None or not manifest.kept:
        return None
    location = storage.join(out, manifest.kept[0])
    data = storage.read(location)
    if _index_name(data) != manifest.kept[0]:
        raise StoreError(f"{storage.shown(location)}: is not as it was written; convert everything anew")
    return _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))


def stage_kept(kept: Kept, tiers: Sequence[Tier], scratch: str) -> tuple[KeptFile, ...]:
    """Write the index of these tiers, and say which files become files of the dataset; the index is the first."""
    files = [KeptFile(_name_of(file), file.size, file.location) for tier in tiers for file in tier.files]
    catalogued = tuple((_named(tier.records.catalogued), _named(tier.outcomes.catalogued)) for tier in tiers)
    encoded = msgspec.msgpack.encode(msgspec.structs.replace(kept, tiers=catalogued))
    data = zstandard.ZstdCompressor().compress(encoded)
    location = storage.join(scratch, _index_name(data))
    storage.write(location, data)
    return (KeptFile(_index_name(data), len(data), location), *files)


def tiers_to_merge(tiers: Sequence[Tier]) -> int:
    """How many of the last tiers are to become one; 1: none."""
    count, behind = 1, 0
    for number, tier in enumerate(reversed(tiers)):
        if number and tier.bytes <= _FACTOR * behind:
            count = number + 1
        behind += tier.bytes
    return count


def _named(catalogued: Catalogued) -> Catalogued:
    entries = [(msgspec.structs.replace(file, location=_name_of(file)), bits) for file, bits in catalogued.entries]
    return Catalogued(entries, catalogued.sizes)


def _name_of(file: ShuffleFile) -> str:
    """The name that a shuffle file has in the dataset."""
    name = Path(file.location.partition("?")[0] if storage.is_url(file.location) else file.location).name
    return name if name.startswith(KEPT_PREFIX) else f"{KEPT_PREFIX}{name.removeprefix('shuffle-')}"


def _index_name(data: bytes) -> str:
    return f"{KEPT_PREFIX}index-{hashlib.sha256(data).hexdigest()[:32]}"
