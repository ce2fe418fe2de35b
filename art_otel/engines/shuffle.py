"""Shuffle: the files with which records move from the tasks that read them to the tasks that assemble them.

    shuffle file    block ... block  index          one task writes the file, once
    block           list list ...                   compressed, with a checksum in the index
    list            header, records                 one region and kind, in MessagePack; spans without their resource,
                                                    which is written once before them

A record's slot is a hash of its trace id, so all records of a trace are in one slot of every file. A region is a slot
(0 and up) or a group of names (below 0). Small neighboring regions share a block. A `Shuffle` lists the files of many
tasks, and the regions of each file. Tasks find their files in a catalog, which is written once: thousands of tasks that
each name thousands of files would take gigabytes.

Invariant: a file is never changed; reading gives exactly what was written, or raises a StorageError with the file's
name. The size that a slot counts depends on its records only, not on how they were spread over files.
"""

import hashlib
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from hashlib import blake2b
from types import GenericAlias
from typing import BinaryIO, Final, Literal, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
import zstandard

from art_otel import storage
from art_otel.conventions import SPAN_NAME
from art_otel.errors import StorageError
from art_otel.spans import LogRecord, Quarantined, Resource, Span
from art_otel.store import RowKey
from art_otel.trajectories import ExternalReward


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """States that a trace has spans of rollout id `name`, or a call with response id `name`, by the region.

    In a slot: states that the trace is assembled together with trace `name`, its representative.
    """

    name: str
    trace_id: str


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """States that records of a trace came in a round of an incremental conversion; `spans` and `logs` count them.

    `changed` is the last write to a file with these records, in nanoseconds.
    """

    trace_id: str
    round: int
    changed: int
    spans: int = 0
    logs: int = 0


class GivenRow(msgspec.Struct, frozen=True, array_like=True):
    """The key of a trace's rows in the dataset, and a digest of their content."""

    key: RowKey
    digest: bytes


OutcomeState: TypeAlias = Literal["open", "given", "closed", "nothing"]


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The state of a trace after a round, and the time of the round in nanoseconds. The last round's outcome counts.

    - `open`: more spans of the trace are expected.
    - `given`: the trace, or a trace that it is linked to, has rows in the dataset.
    - `closed`: no record came since the horizon; spans that come now are too late.
    - `nothing`: the trace has no rollout.
    """

    trace_id: str
    round: int
    at: int
    state: OutcomeState
    rows: tuple[GivenRow, ...] = ()

    def is_over(self, horizon: int) -> bool:
        """Whether later records of the trace are too late."""
        return self.state == "closed" or (self.state != "open" and self.at < horizon)


ShuffleRecord: TypeAlias = Span | LogRecord | Quarantined | ExternalReward
State: TypeAlias = Arrival | Outcome
Stored: TypeAlias = ShuffleRecord | Membership | State

_ItemT = TypeVar("_ItemT")

_HEADER: Final = struct.Struct("<ciI")
"""Kind, region, number of bytes after the header."""

_KINDS: Final[dict[type[Stored], bytes]] = {
    Span: b"s",
    LogRecord: b"l",
    Quarantined: b"q",
    ExternalReward: b"r",
    Membership: b"m",
    Arrival: b"a",
    Outcome: b"e",
}
_DECODERS: Final[dict[bytes, msgspec.msgpack.Decoder[list[Stored]]]] = {
    # The type checker takes no variable as a type's argument; msgspec does.
    kind: msgspec.msgpack.Decoder(GenericAlias(list, (record,)))
    for record, kind in _KINDS.items()
}
_ENCODER: Final = msgspec.msgpack.Encoder()
_RESOURCE: Final = b"o"
"""The kind of a resource, which holds for the next spans in the block: all spans of a process share one resource."""

_RESOURCE_DECODER: Final = msgspec.msgpack.Decoder(Resource)
_NO_RESOURCE: Final = Resource()
_OVERHEAD: Final = 64
"""Bytes that a record counts in addition to its encoded bytes, for the objects in memory."""

_Block: TypeAlias = tuple[int, int, int]
"""A block's start in the file, its number of bytes, and their CRC-32."""

_Index: TypeAlias = dict[int, list[_Block]]
_INDEX_DECODER: Final[msgspec.msgpack.Decoder[_Index]] = msgspec.msgpack.Decoder(_Index)

_READ: Final = 4 << 20
"""The most bytes that are read with one request."""

_BUDGET: Final = 48 << 20
"""How many bytes of records a writer collects in memory before it writes them."""

_COMPRESSION: Final = zstandard.ZstdCompressionParameters(compression_level=-5, window_log=22)
"""Fast, with a window of 4 MiB: each prompt of a rollout repeats the one before. Token ids, which do not repeat, stay
uncompressed: making them a quarter smaller would take 1.5 times as long."""

_LIGHT: Final = zstandard.ZstdCompressionParameters(compression_level=-100, window_log=22)
"""For small inputs, whose records would fit into memory: a fifth of the time, twice the bytes."""

_LIST: Final = struct.Struct(">cI")
"""The beginning of a MessagePack list: its marker, and the number of its items."""

_ListKey: TypeAlias = tuple[int, bytes, bytes]
"""The common values of a list's records: region, kind, and resource of spans."""


class ShuffleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A shuffle file of `size` bytes, with the index from byte `index_start` to the end."""

    location: str
    size: int
    index_start: int


class SlotSize(msgspec.Struct, frozen=True, array_like=True):
    """How many records a slot has, and their uncompressed bytes."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: "SlotSize") -> "SlotSize":
        """Add the records and the bytes of another slot."""
        return SlotSize(self.records + other.records, self.bytes + other.bytes)


class Shuffled(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a task: its file (None if it had no records), and the size of each region."""

    file: ShuffleFile | None
    regions: dict[int, SlotSize]


NOTHING: Final = Shuffled(file=None, regions={})

_NAME_REGIONS: Final = 256
"""The number of regions for rollout ids: of a hundred million rollouts, a route task holds half a million at once."""

ROLLOUT_REGIONS: Final = range(-_NAME_REGIONS, 0)
"""Regions of records that name a rollout id: memberships, and rewards whose trace is not known yet."""

RESPONSE_REGIONS: Final = range(-2 * _NAME_REGIONS, -_NAME_REGIONS)
"""Regions of records that name a response id and no rollout."""


SPAN_REGIONS: Final = range(-3 * _NAME_REGIONS, -2 * _NAME_REGIONS)
"""Regions of records that name a span id without its trace id."""

NAME_REGIONS: Final = range(SPAN_REGIONS.start, 0)
"""All regions of names."""


def region_of_response(name: str) -> int:
    """The region of a response id, or of a span id that a reward names in place of it (prefix `SPAN_NAME`)."""
    return region_of(name, SPAN_REGIONS if name.startswith(SPAN_NAME) else RESPONSE_REGIONS)


def region_of(name: str, regions: range) -> int:
    """The region of a rollout id or response id."""
    return regions[hash_of(name) % len(regions)]


def hash_of(text: str) -> int:
    """A hash of 64 bits that is equal in every process and run, unlike Python's `hash`."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def encode(record: Stored) -> bytes:
    """Encode a record as in a block: a span without its resource."""
    if isinstance(record, Span):
        record = msgspec.structs.replace(record, resource=_NO_RESOURCE)
    return _ENCODER.encode(record)


def size_of(encoded: Sequence[bytes]) -> SlotSize:
    """The number of records, and their bytes with the overhead of each."""
    return SlotSize(len(encoded), sum(map(len, encoded)) + _OVERHEAD * len(encoded))


class ShuffleWriter:
    """Writes one shuffle file into the scratch folder. Memory has about `_BUDGET` bytes of records.

        writer = ShuffleWriter(scratch, slots=4096)
        writer.add(span)                     # into the slot of its trace
        shuffled = writer.finish()

    `bundle` neighboring regions share a block. `is_small`: compress only lightly.
    """

    def __init__(self, scratch: str, slots: int, *, bundle: int = 1, is_small: bool = False) -> None:
        self._location = storage.join(scratch, f"shuffle-{uuid4().hex}")
        self._staged = ExitStack()
        self._slots, self._bundle = slots, bundle
        self._held: dict[int, dict[_ListKey, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        self._held_bytes = 0
        self._resource: tuple[Resource | None, bytes] = (None, b"")
        self._trace = ("", hash_of("") % slots)
        self._sizes: dict[int, SlotSize] = defaultdict(SlotSize)
        self._index: _Index = defaultdict(list)
        self._size = 0
        self._compressor = zstandard.ZstdCompressor(compression_params=_LIGHT if is_small else _COMPRESSION)
        self._file: BinaryIO | None = None

    def add(self, record: ShuffleRecord | Arrival | Outcome) -> None:
        """Put a record into the slot of its trace."""
        trace_id = record.trace_id or ""
        if trace_id != self._trace[0]:  # records of a trace mostly follow each other, so one hash serves for many
            self._trace = (trace_id, hash_of(trace_id) % self._slots)
        self.put(self._trace[1], record)

    def put(self, region: int, record: Stored) -> None:
        """Put a record into a region."""
        resource = b""
        if isinstance(record, Span):
            if record.resource is not self._resource[0]:
                self._resource = (record.resource, _ENCODER.encode(record.resource))
            resource = self._resource[1]
        encoded = encode(record)
        self._held[region // self._bundle][region, _KINDS[type(record)], resource].append(encoded)
        self._held_bytes += len(encoded) + _OVERHEAD
        if self._held_bytes > _BUDGET:
            self._flush()

    def finish(self) -> Shuffled:
        """Write the remaining records and the index, and close the file."""
        self._flush()
        if not self._sizes:
            return Shuffled(file=None, regions={})
        start = self._size
        self._write(_ENCODER.encode(self._index))
        self._opened().close()
        self._staged.close()
        written = ShuffleFile(location=self._location, size=self._size, index_start=start)
        return Shuffled(file=written, regions=dict(sorted(self._sizes.items())))

    def _flush(self) -> None:
        for _, held in sorted(self._held.items()):
            block = self._compressed(held)
            located = (self._size, len(block), zlib.crc32(block))
            for (region, _, _), records in held.items():
                self._sizes[region] += size_of(records)
                if self._index[region][-1:] != [located]:
                    self._index[region].append(located)
            self._write(block)
        self._held.clear()
        self._held_bytes = 0

    def _compressed(self, held: Mapping[_ListKey, list[bytes]]) -> bytes:
        """The records as a block, compressed piece by piece: joining all of them first would take longer."""
        pieces: list[bytes] = []
        before = b""
        for (region, kind, resource), records in held.items():
            if resource and resource != before:
                pieces += (_HEADER.pack(_RESOURCE, region, len(resource)), resource)
                before = resource
            size = _LIST.size + sum(map(len, records))
            pieces += (_HEADER.pack(kind, region, size), _LIST.pack(b"\xdd", len(records)), *records)
        compressor = self._compressor.compressobj(size=sum(map(len, pieces)))
        return b"".join((*map(compressor.compress, pieces), compressor.flush()))

    def _write(self, data: bytes) -> None:
        self._opened().write(data)
        self._size += len(data)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._staged.enter_context(storage.staged(self._location)).open("wb")
        return self._file


class Shards:
    """Reads some regions of several shuffle files, file by file."""

    def __init__(self, files: Iterable[ShuffleFile], regions: Collection[int]) -> None:
        wanted = frozenset(regions)
        self._decompressor = zstandard.ZstdDecompressor()
        self._buffer = bytearray()
        self._located = [(file, located) for file in files if (located := _located(file, wanted))]

    def records(self, regions: Collection[int]) -> Iterator[Stored]:
        """The records of these regions."""
        for _, records in self._decode((block for _, block in self._blocks(regions)), frozenset(regions)):
            yield from records

    def bundles(self, regions: Collection[int], bundle: int) -> Iterator[Iterator[tuple[int, Sequence[Stored]]]]:
        """The records of these regions, bundle by bundle; each list with its region.

        `bundle` is that of the writers, so no block is in two bundles. Memory has all blocks, compressed.
        """
        together: dict[int, list[int]] = defaultdict(list)
        for region in regions:
            together[region // bundle].append(region)
        blocks: dict[int, list[bytes]] = defaultdict(list)
        for region, block in self._blocks(regions):
            blocks[region // bundle].append(block)
        for number, several in together.items():
            yield self._decode(blocks.pop(number, ()), frozenset(several))

    def _decode(self, blocks: Iterable[bytes], regions: Collection[int]) -> Iterator[tuple[int, Sequence[Stored]]]:
        """The lists of these regions in blocks.

        All blocks are decompressed into one buffer, because getting new memory from the system takes long.
        """
        buffer, self._buffer = self._buffer, bytearray()  # a second iterator at the same time gets a buffer of its own
        for block in blocks:
            size, position, resource = zstandard.frame_content_size(block), 0, Resource()
            if size > len(buffer):
                buffer = bytearray(size)
            content = memoryview(buffer)[:size]
            self._decompress(block, content)
            while position < size:
                kind, region, length = _HEADER.unpack_from(content, position)
                start, position = position + _HEADER.size, position + _HEADER.size + length
                if kind == _RESOURCE:
                    resource = _RESOURCE_DECODER.decode(content[start:position])
                    continue
                if region not in regions:  # a neighboring region in the same block
                    continue
                records = _DECODERS[kind].decode(content[start:position])
                if kind == _KINDS[Span]:
                    for record in records:
                        msgspec.structs.force_setattr(record, "resource", resource)
                yield region, records
        self._buffer = buffer

    def _decompress(self, block: bytes, content: memoryview) -> None:
        with self._decompressor.stream_reader(block) as stream:
            filled = 0
            while count := stream.readinto(content[filled:]):  # pyright: ignore[reportUnknownMemberType] # zstandard does not say what it fills
                filled += count

    def _blocks(self, regions: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """The blocks with records of these regions, each block once, with one of its regions."""
        for file, located in self._located:
            blocks = {block: region for region in regions for block in located.get(region, ())}
            if blocks:
                yield from _read_blocks(file, sorted(blocks.items()))


def _located(file: ShuffleFile, regions: Collection[int]) -> _Index:
    try:
        index = _INDEX_DECODER.decode(storage.read(file.location, file.index_start, file.size))
    except msgspec.DecodeError as error:
        raise _changed(file) from error
    return {region: blocks for region, blocks in index.items() if region in regions}


def _read_blocks(file: ShuffleFile, blocks: Iterable[tuple[_Block, int]]) -> Iterator[tuple[int, bytes]]:
    """Read blocks in the order of the file. Neighboring blocks are read at once: in a store each read is a request."""
    runs: list[list[tuple[_Block, int]]] = []
    begin = end = -1
    for block, region in blocks:
        start, size, _ = block
        if start != end or start + size - begin > _READ:
            runs.append([])
            begin = start
        runs[-1].append((block, region))
        end = start + size
    with storage.open_reader(file.location) as reader:
        for run in runs:
            (begin, _, _), (last, length, _) = run[0][0], run[-1][0]
            data = reader.read_at(last + length - begin, begin)
            for (start, size, crc32), region in run:
                content = data[start - begin : start - begin + size]
                if zlib.crc32(content) != crc32:
                    raise _changed(file)
                yield region, content


def _changed(file: ShuffleFile) -> StorageError:
    return StorageError(f"{storage.shown(file.location)}: was changed while it was in use; convert again")


_Entries: TypeAlias = list[tuple[ShuffleFile, bytes]]
"""Files, each with one bit per region, set if the file has records there; the first region has the lowest bit."""

_ENTRIES_DECODER: Final[msgspec.msgpack.Decoder[_Entries]] = msgspec.msgpack.Decoder(_Entries)


class ShuffleCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The file that lists the shuffle files and their regions; `location` is None if there are no files."""

    location: str | None

    def files_with(self, regions: Iterable[int]) -> list[ShuffleFile]:
        """The files with records in one of these regions."""
        wanted = int.from_bytes(_bits(regions), "little")
        entries = [] if self.location is None else _entries(self.location)
        return [file for file, bits in entries if int.from_bytes(bits, "little") & wanted]


class Shuffle(msgspec.Struct):
    """The output of many tasks: `entries` are the files with their regions, `sizes` is the size of each region.

    In the index of a dataset (`incremental.Kept`) its files have names without a folder.
    """

    entries: _Entries = msgspec.field(default_factory=_Entries)
    sizes: dict[int, SlotSize] = msgspec.field(default_factory=dict[int, SlotSize])

    @classmethod
    def of(cls, shuffled: Iterable[Shuffled]) -> "Shuffle":
        """Collect the outputs of these tasks."""
        shuffle = cls()
        for one in shuffled:
            shuffle.add(one)
        return shuffle

    @classmethod
    def union(cls, shuffles: Iterable["Shuffle"]) -> "Shuffle":
        """Unite the files and sizes of several shuffles."""
        union = cls()
        for shuffle in shuffles:
            union.entries += shuffle.entries
            union._add_sizes(shuffle.sizes)
        return union

    def __or__(self, other: "Shuffle") -> "Shuffle":
        """Unite the entries and sizes of two shuffles."""
        return Shuffle.union((self, other))

    def add(self, shuffled: Shuffled) -> None:
        """Add the output of another task."""
        if shuffled.file is not None:
            self.entries.append((shuffled.file, _bits(shuffled.regions)))
            self._add_sizes(shuffled.regions)

    def _add_sizes(self, sizes: Mapping[int, SlotSize]) -> None:
        for region, size in sizes.items():
            self.sizes[region] = self.sizes[region] + size if region in self.sizes else size

    @property
    def files(self) -> list[ShuffleFile]:
        """The shuffle files."""
        return [file for file, _ in self.entries]

    def renamed(self, location_of: Callable[[ShuffleFile], str]) -> "Shuffle":
        """This shuffle with the location `location_of(file)` for each file."""
        entries = [(msgspec.structs.replace(file, location=location_of(file)), bits) for file, bits in self.entries]
        return Shuffle(entries, self.sizes)

    def write_catalog(self, folder: str) -> ShuffleCatalog:
        """Write the catalog of the files. Its name is a digest of its content, so equal catalogs are one file."""
        if not self.entries:
            return ShuffleCatalog(location=None)
        encoded = msgspec.msgpack.encode(self.entries)
        location = storage.join(folder, f"catalog-{hashlib.sha256(encoded).hexdigest()[:32]}")
        storage.write(location, encoded, synced=False)
        return ShuffleCatalog(location=location)


@lru_cache(maxsize=4)
def _entries(location: str) -> _Entries:
    return _ENTRIES_DECODER.decode(storage.read(location))


def _bits(regions: Iterable[int]) -> bytes:
    bits = bytearray()
    for region in regions:
        byte, bit = divmod(region - NAME_REGIONS.start, 8)
        if byte >= len(bits):
            bits.extend(bytes(byte + 1 - len(bits)))
        bits[byte] |= 1 << bit
    return bytes(bits)


def plan_regions(sizes: Mapping[int, SlotSize], regions: Iterable[int], most: int) -> list[tuple[int, ...]]:
    """Group neighboring regions with records into batches of at most `most` bytes; one large region is a batch."""
    return in_batches(sorted(sizes.keys() & set(regions)), lambda region: sizes[region].bytes, most)


def in_batches(items: Iterable[_ItemT], size_of: Callable[[_ItemT], int], most: int) -> list[tuple[_ItemT, ...]]:
    """Group items in their order into batches of at most `most` bytes; one larger item is a batch of its own."""
    batches: list[list[_ItemT]] = []
    total = most
    for item in items:
        size = size_of(item)
        if not batches or total + size > most:
            batches.append([])
            total = 0
        batches[-1].append(item)
        total += size
    return [tuple(batch) for batch in batches]
