"""Catalog: which shuffle files have something in which regions, for the plan and for the tasks.

Invariant: who plans holds a few hundred bytes a file, and sizes by region but not by file. Tasks find their files in a
catalog that is written down once: thousands of files named by thousands of tasks would be gigabytes.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from art_otel import storage
from art_otel.engines.shards.shuffle_file import FIRST_REGION, Shuffled, ShuffleFile, SlotSize

_Entries: TypeAlias = list[tuple[ShuffleFile, bytes]]
"""Files, each with a bit for each region in which it has something, the first region in the lowest bit."""

_DECODER: Final[msgspec.msgpack.Decoder[_Entries]] = msgspec.msgpack.Decoder(_Entries)


class ShuffleCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is written which files there are; `location` is None where there are none."""

    location: str | None

    def files_with(self, regions: Iterable[int]) -> list[ShuffleFile]:
        """The files that have something in one of these regions."""
        return [] if self.location is None else _files_with(_entries(self.location), regions)


class Catalogued(msgspec.Struct, frozen=True):
    """A shuffle as it is written down for later conversions."""

    entries: _Entries
    sizes: dict[int, SlotSize]


class Shuffle:
    """What tasks wrote, all together. `sizes` is how much is in each region."""

    def __init__(self, shuffled: Iterable[Shuffled] = ()) -> None:
        self.sizes: dict[int, SlotSize] = {}
        self._entries: _Entries = []
        for one in shuffled:
            self.add(one)

    def add(self, shuffled: Shuffled) -> None:
        """Add what another task wrote."""
        self._add_sizes(shuffled.regions)
        if shuffled.file is not None:
            self._entries.append((shuffled.file, _bits(shuffled.regions)))

    def __or__(self, other: "Shuffle") -> "Shuffle":
        """Both together."""
        union = Shuffle()
        for shuffle in (self, other):
            union._add_sizes(shuffle.sizes)
            union._entries += shuffle._entries
        return union

    def files_with(self, regions: Iterable[int]) -> list[ShuffleFile]:
        """The files that have something in one of these regions."""
        return _files_with(self._entries, regions)

    @property
    def files(self) -> list[ShuffleFile]:
        """All files."""
        return [file for file, _ in self._entries]

    @property
    def catalogued(self) -> Catalogued:
        """It, to be written down."""
        return Catalogued(self._entries, self.sizes)

    @classmethod
    def of(cls, catalogued: Catalogued, folder: str) -> "Shuffle":
        """What was written down, whose files are in this folder now."""
        shuffle = cls()
        shuffle._add_sizes(catalogued.sizes)
        for file, bits in catalogued.entries:
            location = storage.join(folder, file.location)
            shuffle._entries.append((msgspec.structs.replace(file, location=location), bits))
        return shuffle

    def write_catalog(self, folder: str) -> ShuffleCatalog:
        """Write down the files, for tasks to find theirs. The name tells the content."""
        if not self._entries:
            return ShuffleCatalog(location=None)
        encoded = msgspec.msgpack.encode(self._entries)
        location = storage.join(folder, f"catalog-{hashlib.sha256(encoded).hexdigest()[:32]}")
        storage.write(location, encoded, synced=False)
        return ShuffleCatalog(location=location)

    def _add_sizes(self, sizes: dict[int, SlotSize]) -> None:
        for region, size in sizes.items():
            self.sizes[region] = self.sizes[region] + size if region in self.sizes else size


@lru_cache(maxsize=4)
def _entries(location: str) -> _Entries:
    return _DECODER.decode(storage.read(location))


def _files_with(entries: _Entries, regions: Iterable[int]) -> list[ShuffleFile]:
    wanted = int.from_bytes(_bits(regions), "little")
    return [file for file, bits in entries if int.from_bytes(bits, "little") & wanted]


def _bits(regions: Iterable[int]) -> bytes:
    bits = bytearray()
    for region in regions:
        byte, bit = divmod(region - FIRST_REGION, 8)
        if byte >= len(bits):
            bits.extend(bytes(byte + 1 - len(bits)))
        bits[byte] |= 1 << bit
    return bytes(bits)
