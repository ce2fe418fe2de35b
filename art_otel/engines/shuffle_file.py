"""Shuffle files: records on their way from the tasks that read them to the tasks that assemble them.

A shuffle file is written once by one task. It has a region for each slot that the task had records for, and for names;
an index at its end says where they are. The slot of a record follows from its trace id, so that all records of a trace
are in one slot of every file. A region is one or more blocks, each compressed alone and with a checksum of its own. A
block is a sequence of batches: a header (`HEADER`), and a list of records of one kind in MessagePack, spans behind
their resource and without it.

Invariant: a file is never changed, and what is read from it is what was written, or a StorageError names it. How many
bytes a slot counts depends on its records only, not on how they were spread over files.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import chain
from typing import BinaryIO, Final, TypeAlias
from uuid import uuid4

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.rounds import Arrival, Outcome
from art_otel.errors import StorageError
from art_otel.spans import LogRecord, Quarantined, Resource, Span
from art_otel.trajectories import ExternalReward


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """That a trace has spans of a rollout id, or a call with a response id: the region says which."""

    name: str
    trace_id: str


Record: TypeAlias = Span | LogRecord | Quarantined | ExternalReward
Stored: TypeAlias = Record | Membership | Arrival | Outcome

_HEADER: Final = struct.Struct("<cI")
"""Kind, bytes behind the header."""

_KINDS: Final[dict[type[Stored], bytes]] = {
    Span: b"s",
    LogRecord: b"l",
    Quarantined: b"q",
    ExternalReward: b"r",
    Membership: b"m",
    Arrival: b"a",
    Outcome: b"e",
}
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(list[record]) for record, kind in _KINDS.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()
_RESOURCE: Final = b"o"
"""The resource of the spans behind it in a block: a process has one, and its spans need it once."""

_RESOURCE_DECODER: Final = msgspec.msgpack.Decoder(Resource)
_NO_RESOURCE: Final = Resource()
_OVERHEAD: Final = 64
"""Bytes that a record counts besides its own."""

_Block: TypeAlias = tuple[int, int, int]
"""Where it begins in the file, its bytes, their CRC-32."""

_Index: TypeAlias = dict[int, list[_Block]]
_INDEX_DECODER: Final[msgspec.msgpack.Decoder[_Index]] = msgspec.msgpack.Decoder(_Index)

_READ: Final = 16 << 20

_BUDGET: Final = 48 << 20
"""Bytes of records that are in memory before they are written."""

_COMPRESSION: Final = zstandard.ZstdCompressionParameters(compression_level=1, window_log=22)
"""Fast, and with a window that holds the prompts of a rollout: each repeats the one before."""

_BATCH: Final = 64 << 10
"""About so many bytes are a batch, or one larger record."""

_LIST: Final = struct.Struct(">cI")
"""How a list begins in MessagePack: what it is, and the number of its items."""

_Key: TypeAlias = tuple[bytes, bytes]
"""What the records of a batch share: their kind, and the resource of spans."""

_BUFFER: Final = 256 << 10


class ShuffleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A shuffle file. `crc32` is of all its `size` bytes, of which the last from `index_start` on are the index."""

    location: str
    size: int
    crc32: int
    index_start: int

    def is_intact(self) -> bool:
        """Whether the file is there as it was written."""
        try:
            return storage.size_of(self.location) == self.size and self._crc32() == self.crc32
        except (OSError, StorageError):
            return False

    def _crc32(self) -> int:
        crc = 0
        with storage.open_reader(self.location) as reader:
            for start in range(0, self.size, _READ):
                crc = zlib.crc32(reader.read_at(min(_READ, self.size - start), start), crc)
        return crc


class SlotSize(msgspec.Struct, frozen=True, array_like=True):
    """How many records a slot has, and how many bytes they are when nothing is compressed."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: "SlotSize") -> "SlotSize":
        """Both together."""
        return SlotSize(self.records + other.records, self.bytes + other.bytes)


class Shuffled(msgspec.Struct, frozen=True, kw_only=True):
    """What a task wrote: its file (None when there was nothing to write) and how much is in each region."""

    file: ShuffleFile | None
    regions: dict[int, SlotSize]

    def is_intact(self) -> bool:
        """Whether the file is there as it was written."""
        return self.file is None or self.file.is_intact()


NOTHING: Final = Shuffled(file=None, regions={})

_NAME_REGIONS: Final = 256
"""So many that who links the traces of a hundred million rollouts holds half a million at once."""

ROLLOUT_REGIONS: Final = range(-_NAME_REGIONS, 0)
"""The regions of what names a rollout id: memberships, and rewards whose trace is not known yet."""

RESPONSE_REGIONS: Final = range(-2 * _NAME_REGIONS, -_NAME_REGIONS)
"""The regions of what names a response id and no rollout."""


def region_of(name: str, regions: range) -> int:
    """The region of a rollout id or response id."""
    return regions[hash_of(name) % len(regions)]


def hash_of(text: str) -> int:
    """64 bits, the same in every process and run."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def encode(record: Stored) -> bytes:
    """A record as it stands in a batch."""
    if isinstance(record, Span):
        record = msgspec.structs.replace(record, resource=_NO_RESOURCE)
    return _ENCODER.encode(record)


def size_of(encoded: Sequence[bytes]) -> SlotSize:
    """How much some records count."""
    return SlotSize(len(encoded), sum(map(len, encoded)) + _OVERHEAD * len(encoded))


class ShuffleWriter:
    """Writes one shuffle file into the scratch folder. Memory holds about `_BUDGET` bytes of records."""

    def __init__(self, scratch: str, slots: int) -> None:
        self._location = storage.join(scratch, f"shuffle-{uuid4().hex}")
        self._staged = ExitStack()
        self._slots = slots
        self._held: dict[int, dict[_Key, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        self._held_bytes = 0
        self._resource: tuple[Resource | None, _Key] = (None, (b"", b""))
        self._trace = ("", hash_of("") % slots)
        self._sizes: dict[int, SlotSize] = defaultdict(SlotSize)
        self._index: _Index = defaultdict(list)
        self._size = self._crc32 = 0
        self._compressor = zstandard.ZstdCompressor(compression_params=_COMPRESSION)
        self._file: BinaryIO | None = None

    def add(self, record: Record | Arrival | Outcome) -> None:
        """Put a record into the slot of its trace."""
        trace_id = record.trace_id or ""
        if trace_id != self._trace[0]:  # records of a trace mostly stand together
            self._trace = (trace_id, hash_of(trace_id) % self._slots)
        self.put(self._trace[1], record)

    def put(self, region: int, record: Stored) -> None:
        """Put a record into a region."""
        if not isinstance(record, Span):
            key = (_KINDS[type(record)], b"")
        elif record.resource is self._resource[0]:
            key = self._resource[1]
        else:
            key = (_KINDS[Span], _ENCODER.encode(record.resource))
            self._resource = (record.resource, key)
        encoded = encode(record)
        self._held[region][key].append(encoded)
        self._held_bytes += len(encoded) + _OVERHEAD
        if self._held_bytes > _BUDGET:
            self._flush()

    def finish(self) -> Shuffled:
        """Write what is left, and the index."""
        self._flush()
        if not self._sizes:
            return Shuffled(file=None, regions={})
        start = self._size
        self._write(_ENCODER.encode(self._index))
        self._opened().close()
        self._staged.close()
        written = ShuffleFile(location=self._location, size=self._size, crc32=self._crc32, index_start=start)
        return Shuffled(file=written, regions=dict(sorted(self._sizes.items())))

    def _flush(self) -> None:
        for region, held in sorted(self._held.items()):
            self._sizes[region] = sum(map(size_of, held.values()), self._sizes[region])
            block = self._compressed(held)
            self._index[region].append((self._size, len(block), zlib.crc32(block)))
            self._write(block)
        self._held.clear()
        self._held_bytes = 0

    def _compressed(self, held: Mapping[_Key, list[bytes]]) -> bytes:
        """The records as a block, by batches: to get memory for all at once from the system takes longer."""
        batches = [batch for key, records in held.items() for batch in _batches(key, records)]
        compressor = self._compressor.compressobj(size=sum(map(len, chain.from_iterable(batches))))
        compressed = [compressor.compress(b"".join(batch)) for batch in batches]
        return b"".join((*compressed, compressor.flush()))

    def _write(self, data: bytes) -> None:
        self._opened().write(data)
        self._size += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._staged.enter_context(storage.staged(self._location)).open("wb")
        return self._file


def _batches(key: _Key, records: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The bytes of the batches of these records, each in pieces."""
    kind, resource = key
    if resource:
        yield [_HEADER.pack(_RESOURCE, len(resource)), resource]
    count = max(1, _BATCH * len(records) // sum(map(len, records)))
    for start in range(0, len(records), count):
        batch = records[start : start + count]
        yield [_HEADER.pack(kind, _LIST.size + sum(map(len, batch))), _LIST.pack(b"\xdd", len(batch)), *batch]


class Shards:
    """What several shuffle files have in some regions, file by file."""

    def __init__(self, files: Iterable[ShuffleFile], regions: Collection[int]) -> None:
        wanted = frozenset(regions)
        self._batches = _Batches()
        self._located = [(file, located) for file in files if (located := _located(file, wanted))]

    def records(self, regions: Collection[int]) -> Iterator[Stored]:
        """The records of these regions."""
        return self.decode(block for _, block in self._blocks(regions))

    def blocks(self, regions: Collection[int]) -> dict[int, list[bytes]]:
        """The blocks of these regions, compressed, by region: to be decoded one region after the other."""
        blocks: dict[int, list[bytes]] = {region: [] for region in regions}
        for region, block in self._blocks(regions):
            blocks[region].append(block)
        return blocks

    def decode(self, blocks: Iterable[bytes]) -> Iterator[Stored]:
        """The records of blocks. Ask for those of others only when these are no longer needed."""
        for block in blocks:
            for batch in self._batches.of(block):
                yield from batch

    def _blocks(self, regions: Collection[int]) -> Iterator[tuple[int, bytes]]:
        for file, located in self._located:
            blocks = sorted((block, region) for region in regions for block in located.get(region, ()))
            if blocks:
                yield from _read_blocks(file, blocks)


def _located(file: ShuffleFile, regions: Collection[int]) -> _Index:
    try:
        index = _INDEX_DECODER.decode(storage.read(file.location, file.index_start, file.size))
    except msgspec.DecodeError as error:
        raise _changed(file) from error
    return {region: blocks for region, blocks in index.items() if region in regions}


def _read_blocks(file: ShuffleFile, blocks: Iterable[tuple[_Block, int]]) -> Iterator[tuple[int, bytes]]:
    with storage.open_reader(file.location) as reader:
        for (start, size, crc32), region in blocks:
            block = reader.read_at(size, start)
            if zlib.crc32(block) != crc32:
                raise _changed(file)
            yield region, block


def _changed(file: ShuffleFile) -> StorageError:
    return StorageError(f"{storage.shown(file.location)}: was changed while it was needed; convert again")


class _Batches:
    """The batches of blocks. All stand in one buffer: to get it from the system anew for each block takes long."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor()
        self._buffer = bytearray(_BUFFER)
        self._start = self._end = 0  # where the unread bytes are

    def of(self, block: bytes) -> Iterator[Sequence[Stored]]:
        """The batches of a block."""
        header, resource = _HEADER.size, Resource()
        self._start = self._end = 0
        with self._decompressor.stream_reader(block) as stream:
            while self._hold(header, stream):
                kind, size = _HEADER.unpack_from(self._buffer, self._start)
                self._hold(header + size, stream)
                encoded = memoryview(self._buffer)[self._start + header : self._start + header + size]
                self._start += header + size
                if kind == _RESOURCE:
                    resource = _RESOURCE_DECODER.decode(encoded)
                    continue
                records = _DECODERS[kind].decode(encoded)
                if kind == _KINDS[Span]:
                    for record in records:
                        msgspec.structs.force_setattr(record, "resource", resource)
                yield records

    def _hold(self, size: int, stream: zstandard.ZstdDecompressionReader) -> bool:
        """Have the next `size` bytes in the buffer; False at the end of the block."""
        while self._end - self._start < size:
            unread = memoryview(self._buffer)[self._start : self._end]
            if size > len(self._buffer):
                self._buffer = bytearray(2 * size)
            memoryview(self._buffer)[: len(unread)] = unread
            self._start, self._end = 0, len(unread)
            count = stream.readinto(memoryview(self._buffer)[self._end :])  # pyright: ignore[reportUnknownMemberType] # zstandard does not say what it fills
            if not count:
                return False
            self._end += count
        return True
