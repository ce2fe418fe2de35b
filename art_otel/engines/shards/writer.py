"""ShuffleWriter: writes one shuffle file.

Invariant: memory holds about `_BUDGET` bytes of records. A batch has about `_BATCH` bytes, or a larger record.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import BinaryIO, Final, TypeAlias
from uuid import uuid4

import zstandard

from art_otel import storage
from art_otel.engines.shards.shuffle_file import (
    ENCODER,
    HEADER,
    KINDS,
    OVERHEAD,
    RESOURCE,
    Arrival,
    Index,
    Outcome,
    Record,
    Shuffled,
    ShuffleFile,
    SlotSize,
    Stored,
    encode,
    hash_of,
    size_of,
)
from art_otel.spans import Resource, Span

_BUDGET: Final = 48 << 20
"""Bytes of records that are in memory before they are written."""

_COMPRESSION: Final = zstandard.ZstdCompressionParameters(compression_level=1, window_log=22)
"""Fast, and with a window that holds the prompts of a rollout: each repeats the one before."""

_BATCH: Final = 64 << 10
_LIST: Final = struct.Struct(">cI")
"""How a list begins in MessagePack: what it is, and the number of its items."""

_Key: TypeAlias = tuple[bytes, bytes]
"""What the records of a batch share: their kind, and the resource of spans."""


class ShuffleWriter:
    """Writes one shuffle file into the scratch folder."""

    def __init__(self, scratch: str, slots: int) -> None:
        self._location = storage.join(scratch, f"shuffle-{uuid4().hex}")
        self._staged = ExitStack()
        self._slots = slots
        self._held: dict[int, dict[_Key, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        self._held_bytes = 0
        self._resource: tuple[Resource | None, _Key] = (None, (b"", b""))
        self._trace = ("", hash_of("") % slots)
        self._sizes: dict[int, SlotSize] = defaultdict(SlotSize)
        self._index: Index = defaultdict(list)
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
            key = (KINDS[type(record)], b"")
        elif record.resource is self._resource[0]:
            key = self._resource[1]
        else:
            key = (KINDS[Span], ENCODER.encode(record.resource))
            self._resource = (record.resource, key)
        encoded = encode(record)
        self._held[region][key].append(encoded)
        self._held_bytes += len(encoded) + OVERHEAD
        if self._held_bytes > _BUDGET:
            self._flush()

    def finish(self) -> Shuffled:
        """Write what is left, and the index."""
        self._flush()
        if not self._sizes:
            return Shuffled(file=None, regions={})
        start = self._size
        self._write(ENCODER.encode(self._index))
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
        yield [HEADER.pack(RESOURCE, len(resource)), resource]
    count = max(1, _BATCH * len(records) // sum(map(len, records)))
    for start in range(0, len(records), count):
        batch = records[start : start + count]
        yield [HEADER.pack(kind, _LIST.size + sum(map(len, batch))), _LIST.pack(b"\xdd", len(batch)), *batch]
