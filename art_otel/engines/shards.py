"""Shards: records on their way from the tasks that read them to the tasks that assemble them, in shuffle files.

A shuffle file is written once by one task and has a region for each slot that the task had records for. A region is one
or more blocks, each compressed alone and with a checksum of its own; an index at the end of the file says where they
are. The slot of a record follows from its trace id, so that all records of a trace are in one slot of every file.

Invariant: a file is never changed, and what is read from it is what was written, or a StorageError names it. How many
bytes a slot counts depends on its records only, not on how they were spread over files.
"""

import io
import struct
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
import zstandard

from art_otel import storage
from art_otel.errors import StorageError
from art_otel.spans import LogRecord, Quarantined, Resource, Span
from art_otel.trajectories import ExternalReward


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """That a trace has spans of a rollout id."""

    rollout_id: str
    trace_id: str


Record: TypeAlias = Span | LogRecord | Quarantined | ExternalReward
Stored: TypeAlias = Record | Membership

_HEADER: Final = struct.Struct("<cIQI")
"""Kind, bytes of the record, hash of its trace, hash of what tells it apart in the trace."""

_KINDS: Final[dict[bytes, type[Stored]]] = {
    b"s": Span,
    b"l": LogRecord,
    b"q": Quarantined,
    b"r": ExternalReward,
    b"m": Membership,
}
_KIND_OF: Final = {record: kind for kind, record in _KINDS.items()}
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(record) for kind, record in _KINDS.items()}
_RESOURCE: Final = b"o"
"""The resource of the spans behind it in a block: a process has one, and its spans need it once."""

_RESOURCE_DECODER: Final = msgspec.msgpack.Decoder(Resource)
_NO_RESOURCE: Final = Resource()
_OVERHEAD: Final = 64
"""Bytes that a record counts besides its own."""

_BUDGET: Final = 48 << 20
"""Bytes of records that are in memory before they are written."""

_COMPRESSION: Final = zstandard.ZstdCompressionParameters(compression_level=1, window_log=22)
"""Fast, and with a window that holds the prompts of a rollout: each repeats the one before."""

_Block: TypeAlias = tuple[int, int, int]
"""Where it begins in the file, its bytes, their CRC-32."""

_Index: TypeAlias = dict[int, list[_Block]]
_INDEX_DECODER: Final[msgspec.msgpack.Decoder[_Index]] = msgspec.msgpack.Decoder(_Index)


class ShuffleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A shuffle file. `crc32` is of all its `size` bytes, of which the last from `index_start` on are the index.

    `data` holds the bytes of a small one that never left memory; it has no location.
    """

    location: str
    size: int
    crc32: int
    index_start: int
    data: bytes | None = None

    def is_intact(self) -> bool:
        """Whether the file is there as it was written."""
        if self.data is not None:
            return True
        try:
            return storage.size_of(self.location) == self.size and self._crc32() == self.crc32
        except StorageError:
            return False

    def _crc32(self) -> int:
        crc = 0
        with storage.open_reader(self.location) as reader:
            for start in range(0, self.size, _BUDGET):
                crc = zlib.crc32(reader.read_at(min(_BUDGET, self.size - start), start), crc)
        return crc


class SlotSize(msgspec.Struct, frozen=True, array_like=True):
    """How many records a slot has, and how many bytes they are when nothing is compressed."""

    records: int
    bytes: int

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


REWARDS: Final = -1
"""The region of rewards that name nothing but a response: nobody knows their trace yet."""

_LINK_REGIONS: Final = 64


def link_region(rollout_id: str) -> int:
    """The region of what names a rollout id: memberships and rewards. It is before REWARDS."""
    return REWARDS - 1 - hash_of(rollout_id) % _LINK_REGIONS


def hash_of(text: str) -> int:
    """64 bits, the same in every process and run."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


class ShuffleWriter:
    """Writes one shuffle file into the scratch folder, or keeps it in memory."""

    def __init__(self, scratch: str, slots: int, *, in_memory: bool = False) -> None:
        name = f"shuffle-{uuid4().hex}"
        self._location = "" if in_memory else storage.join(scratch, name)
        self._path = Path(tempfile.gettempdir() if storage.is_url(scratch) else scratch, name)
        self._slots = slots
        self._encode = msgspec.msgpack.Encoder().encode
        self._parts: dict[int, list[bytes]] = defaultdict(list)
        self._resources: dict[int, bytes] = {}
        self._resource: tuple[Resource, bytes] = (_NO_RESOURCE, self._encode(_NO_RESOURCE))
        self._trace: tuple[str, int] = ("", hash_of(""))
        self._records: dict[int, int] = defaultdict(int)
        self._bytes: dict[int, int] = defaultdict(int)
        self._held = 0
        self._index: _Index = defaultdict(list)
        self._size = self._crc32 = 0
        self._compress = zstandard.ZstdCompressor(compression_params=_COMPRESSION).compress
        self._file: io.BytesIO | BinaryIO | None = io.BytesIO() if in_memory else None
        self._spills = not in_memory

    def add(self, record: Record) -> None:
        """Put a record into the slot of its trace."""
        trace_hash = self._hash(record.trace_id or "")
        self._put(trace_hash % self._slots, record, trace_hash)

    def put(self, region: int, record: Stored) -> None:
        """Put a record into a region that is not the one of its trace."""
        self._put(region, record, self._hash(record.trace_id or ""))

    def finish(self) -> Shuffled:
        """Write what is left, and the index."""
        regions = {region: SlotSize(self._records[region], self._bytes[region]) for region in sorted(self._records)}
        if not regions:
            return Shuffled(file=None, regions={})
        self._flush()
        start = self._size
        self._write(self._encode(self._index))
        file = self._opened()
        data = file.getvalue() if isinstance(file, io.BytesIO) else None
        file.close()
        if storage.is_url(self._location):
            storage.move(self._path, self._location)
        written = ShuffleFile(location=self._location, size=self._size, crc32=self._crc32, index_start=start, data=data)
        return Shuffled(file=written, regions=regions)

    def _hash(self, trace_id: str) -> int:
        if trace_id != self._trace[0]:  # records of a trace mostly stand together
            self._trace = (trace_id, hash_of(trace_id))
        return self._trace[1]

    def _put(self, region: int, record: Stored, trace_hash: int) -> None:
        parts = self._parts[region]
        if isinstance(record, Span):
            self._put_resource(region, record.resource, parts)
            encoded = self._encode(msgspec.structs.replace(record, resource=_NO_RESOURCE))
            own_hash = zlib.crc32(record.span_id.encode(errors="surrogatepass"))
        else:
            encoded = self._encode(record)
            own_hash = zlib.crc32(encoded)
        size = len(encoded)
        parts += (_HEADER.pack(_KIND_OF[type(record)], size, trace_hash, own_hash), encoded)
        self._records[region] += 1
        self._bytes[region] += size + _OVERHEAD
        self._held += size + _OVERHEAD
        if self._spills and self._held > _BUDGET:
            self._flush()

    def _put_resource(self, region: int, resource: Resource, parts: list[bytes]) -> None:
        if resource is not self._resource[0]:
            self._resource = (resource, self._encode(resource))
        encoded = self._resource[1]
        if self._resources.get(region) != encoded:
            self._resources[region] = encoded
            parts += (_HEADER.pack(_RESOURCE, len(encoded), 0, 0), encoded)

    def _flush(self) -> None:
        for region in sorted(self._parts):
            block = self._compress(b"".join(self._parts[region]))
            self._index[region].append((self._size, len(block), zlib.crc32(block)))
            self._write(block)
        self._parts.clear()
        self._resources.clear()
        self._held = 0

    def _write(self, data: bytes) -> None:
        self._opened().write(data)
        self._size += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)

    def _opened(self) -> io.BytesIO | BinaryIO:
        if self._file is None:
            self._file = self._path.open("wb")
        return self._file


class Entry(NamedTuple):
    """A record in a region, not yet decoded. `own_hash` is the same for each delivery of a span."""

    kind: bytes
    trace_hash: int
    own_hash: int
    size: int
    encoded: memoryview
    resource: "Resource"

    def record(self) -> Stored:
        """The record."""
        record = _DECODERS[self.kind].decode(self.encoded)
        if isinstance(record, Span):
            msgspec.structs.force_setattr(record, "resource", self.resource)
        return record

    @property
    def is_span(self) -> bool:
        """Whether it is a span."""
        return self.kind == b"s"

    @property
    def is_log(self) -> bool:
        """Whether it is a log record."""
        return self.kind == b"l"


class Shards:
    """What several shuffle files have in some regions, file by file."""

    def __init__(self, files: Iterable[ShuffleFile], regions: Collection[int]) -> None:
        wanted = frozenset(regions)
        self._located = [(file, located) for file in files if (located := _located(file, wanted))]

    def entries(self, regions: Collection[int]) -> Iterator[Entry]:
        """The entries of these regions."""
        for file, located in self._located:
            blocks = sorted(block for region in regions for block in located.get(region, ()))
            for data in _read_blocks(file, blocks) if blocks else ():
                yield from _entries(data)

    def records(self, regions: Collection[int]) -> Iterator[Stored]:
        """The records of these regions."""
        for entry in self.entries(regions):
            yield entry.record()


def _located(file: ShuffleFile, regions: Collection[int]) -> _Index:
    if file.data is not None:
        encoded = file.data[file.index_start :]
    else:
        encoded = storage.read(file.location, file.index_start, file.size)
    try:
        index = _INDEX_DECODER.decode(encoded)
    except msgspec.DecodeError as error:
        raise _damaged(file) from error
    return {region: blocks for region, blocks in index.items() if region in regions}


def _read_blocks(file: ShuffleFile, blocks: Sequence[_Block]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor()
    if file.data is not None:
        for start, size, _ in blocks:
            yield decompressor.decompress(file.data[start : start + size])
        return
    with storage.open_reader(file.location) as reader:
        for start, size, crc32 in blocks:
            block = reader.read_at(size, start)
            if zlib.crc32(block) != crc32:
                raise _damaged(file)
            yield decompressor.decompress(block)


def _damaged(file: ShuffleFile) -> StorageError:
    return StorageError(f"{storage.shown(file.location)}: was changed while it was needed; convert again")


def _entries(data: bytes) -> Iterator[Entry]:
    view = memoryview(data)
    unpack, header, at, resource = _HEADER.unpack_from, _HEADER.size, 0, _NO_RESOURCE
    while at < len(data):
        kind, size, trace_hash, own_hash = unpack(data, at)
        at += header
        encoded = view[at : at + size]
        at += size
        if kind == _RESOURCE:
            resource = _RESOURCE_DECODER.decode(encoded)
        else:
            yield Entry(kind, trace_hash, own_hash, size + _OVERHEAD, encoded, resource)
