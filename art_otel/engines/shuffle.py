"""Shuffle: which shuffle files have something in which regions, for the plan and for the tasks.

Invariant: who plans holds a few hundred bytes a file, and sizes by region but not by file. Tasks find their files in a
catalog that is written down once: thousands of files named by thousands of tasks would be gigabytes.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from art_otel import storage
from art_otel.engines.shuffle_file import RESPONSE_REGIONS, Shuffled, ShuffleFile, SlotSize

_Entries: TypeAlias = list[tuple[ShuffleFile, bytes]]
"""Files, each with a bit for each region in which it has something, the first region in the lowest bit."""

_DECODER: Final[msgspec.msgpack.Decoder[_Entries]] = msgspec.msgpack.Decoder(_Entries)


class ShuffleCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The file that lists the shuffle files, for tasks to find theirs; `location` is None where there are none."""

    location: str | None

    def files_with(self, regions: Iterable[int]) -> list[ShuffleFile]:
        """The files that have something in one of these regions."""
        wanted = int.from_bytes(_bits(regions), "little")
        entries = [] if self.location is None else _entries(self.location)
        return [file for file, bits in entries if int.from_bytes(bits, "little") & wanted]


class Catalogued(msgspec.Struct, frozen=True):
    """A shuffle as later conversions read it; its files are named without a folder."""

    entries: _Entries
    sizes: dict[int, SlotSize]


class Shuffle:
    """What tasks wrote, all together. `sizes` is how much is in each region, `files` are all files."""

    def __init__(self, shuffled: Iterable[Shuffled] = ()) -> None:
        self.sizes: dict[int, SlotSize] = {}
        self._entries: _Entries = []
        for one in shuffled:
            self.add(one)

    def add(self, shuffled: Shuffled) -> None:
        """Add what another task wrote."""
        entries = [] if shuffled.file is None else [(shuffled.file, _bits(shuffled.regions))]
        self.extend(Catalogued(entries, shuffled.regions))

    def extend(self, catalogued: Catalogued) -> "Shuffle":
        """Add what was catalogued; give the shuffle."""
        self._entries += catalogued.entries
        for region, size in catalogued.sizes.items():
            self.sizes[region] = self.sizes[region] + size if region in self.sizes else size
        return self

    def __or__(self, other: "Shuffle") -> "Shuffle":
        """Both together."""
        return Shuffle.union((self, other))

    @classmethod
    def union(cls, shuffles: Iterable["Shuffle"]) -> "Shuffle":
        """All of them together."""
        union = cls()
        for shuffle in shuffles:
            union.extend(shuffle.catalogued())
        return union

    @property
    def files(self) -> list[ShuffleFile]:
        """All files."""
        return [file for file, _ in self._entries]

    def catalogued(self, location_of: Callable[[ShuffleFile], str] | None = None) -> Catalogued:
        """The files and sizes, as later conversions read them; `location_of` says where the files are then."""
        if location_of is None:
            return Catalogued(self._entries, self.sizes)
        entries = [(msgspec.structs.replace(file, location=location_of(file)), bits) for file, bits in self._entries]
        return Catalogued(entries, self.sizes)

    @classmethod
    def in_folder(cls, catalogued: Catalogued, folder: str) -> "Shuffle":
        """The files that earlier conversions left in a folder."""
        named = cls().extend(catalogued)
        return cls().extend(named.catalogued(lambda file: storage.join(folder, file.location)))

    def write_catalog(self, folder: str) -> ShuffleCatalog:
        """Write down the files, for tasks to find theirs. The name tells the content."""
        if not self._entries:
            return ShuffleCatalog(location=None)
        encoded = msgspec.msgpack.encode(self._entries)
        location = storage.join(folder, f"catalog-{hashlib.sha256(encoded).hexdigest()[:32]}")
        storage.write(location, encoded, synced=False)
        return ShuffleCatalog(location=location)


@lru_cache(maxsize=4)
def _entries(location: str) -> _Entries:
    return _DECODER.decode(storage.read(location))


def _bits(regions: Iterable[int]) -> bytes:
    bits = bytearray()
    for region in regions:
        byte, bit = divmod(region - RESPONSE_REGIONS.start, 8)
        if byte >= len(bits):
            bits.extend(bytes(byte + 1 - len(bits)))
        bits[byte] |= 1 << bit
    return bytes(bits)
