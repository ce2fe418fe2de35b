"""ShuffleWriter: writes one shuffle file.

Invariant: memory holds about `_BUDGET` bytes of records.
"""

import tempfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.shards.shuffle_file import (
    HEADER,
    KIND_OF,
    NO_RESOURCE,
    OVERHEAD,
    RESOURCE,
    Index,
    Record,
    Shuffled,
    ShuffleFile,
    SlotSize,
    Stored,
    hash_of,
)
from art_otel.spans import Resource, Span

_BUDGET: Final = 48 << 20
"""Bytes of records that are in memory before they are written."""

_COMPRESSION: Final = zstandard.ZstdCompressionParameters(compression_level=1, window_log=22)
"""Fast, and with a window that holds the prompts of a rollout: each repeats the one before."""

_AT_ONCE: Final = 8


class ShuffleWriter:
    """Writes one shuffle file into the scratch folder."""

    def __init__(self, scratch: str, slots: int) -> None:
        name = f"shuffle-{uuid4().hex}"
        self._location = storage.join(scratch, name)
        self._path = Path(tempfile.gettempdir() if storage.is_url(scratch) else scratch, name)
        self._slots = slots
        self._encode = msgspec.msgpack.Encoder().encode
        self._parts: dict[int, list[bytes]] = defaultdict(list)
        self._resources: dict[int, bytes] = {}
        self._resource: tuple[Resource, bytes] = (NO_RESOURCE, self._encode(NO_RESOURCE))
        self._trace: tuple[str, int] = ("", hash_of(""))
        self._records: dict[int, int] = defaultdict(int)
        self._bytes: dict[int, int] = defaultdict(int)
        self._held = 0
        self._index: Index = defaultdict(list)
        self._size = self._crc32 = 0
        self._compressor = zstandard.ZstdCompressor(compression_params=_COMPRESSION)
        self._file: BinaryIO | None = None

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
        self._opened().close()
        if storage.is_url(self._location):
            storage.move(str(self._path), self._location)
        written = ShuffleFile(location=self._location, size=self._size, crc32=self._crc32, index_start=start)
        return Shuffled(file=written, regions=regions)

    def _hash(self, trace_id: str) -> int:
        if trace_id != self._trace[0]:  # records of a trace mostly stand together
            self._trace = (trace_id, hash_of(trace_id))
        return self._trace[1]

    def _put(self, region: int, record: Stored, trace_hash: int) -> None:
        parts = self._parts[region]
        if isinstance(record, Span):
            self._put_resource(region, record.resource, parts)
            encoded = self._encode(msgspec.structs.replace(record, resource=NO_RESOURCE))
            own_hash = zlib.crc32(record.span_id.encode(errors="surrogatepass"))
        else:
            encoded = self._encode(record)
            own_hash = zlib.crc32(encoded)
        size = len(encoded)
        parts += (HEADER.pack(KIND_OF[type(record)], size, trace_hash, own_hash), encoded)
        self._records[region] += 1
        self._bytes[region] += size + OVERHEAD
        self._held += size + OVERHEAD
        if self._held > _BUDGET:
            self._flush()

    def _put_resource(self, region: int, resource: Resource, parts: list[bytes]) -> None:
        if resource is not self._resource[0]:
            self._resource = (resource, self._encode(resource))
        encoded = self._resource[1]
        if self._resources.get(region) != encoded:
            self._resources[region] = encoded
            parts += (HEADER.pack(RESOURCE, len(encoded), 0, 0), encoded)

    def _flush(self) -> None:
        for region in sorted(self._parts):
            block = self._compressed(self._parts[region])
            self._index[region].append((self._size, len(block), zlib.crc32(block)))
            self._write(block)
        self._parts.clear()
        self._resources.clear()
        self._held = 0

    def _compressed(self, parts: list[bytes]) -> bytes:
        """The parts as a block, a few at a time: to get memory for all from the system takes longer than the rest."""
        compressor = self._compressor.compressobj(size=sum(map(len, parts)))
        pieces = [compressor.compress(b"".join(parts[at : at + _AT_ONCE])) for at in range(0, len(parts), _AT_ONCE)]
        return b"".join((*pieces, compressor.flush()))

    def _write(self, data: bytes) -> None:
        self._opened().write(data)
        self._size += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._path.open("wb")
        return self._file
