"""Shards: reading some regions of several shuffle files.

Invariant: every block is checked before it is read; one that is not as it was written is a StorageError.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.shards.shuffle_file import (
    DECODERS,
    HEADER,
    INDEX_DECODER,
    NO_RESOURCE,
    OVERHEAD,
    RESOURCE,
    RESOURCE_DECODER,
    Block,
    Index,
    ShuffleFile,
    Stored,
)
from art_otel.errors import StorageError
from art_otel.spans import Resource, Span


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
        record = DECODERS[self.kind].decode(self.encoded)
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


def _located(file: ShuffleFile, regions: Collection[int]) -> Index:
    if file.data is not None:
        encoded = file.data[file.index_start :]
    else:
        encoded = storage.read(file.location, file.index_start, file.size)
    try:
        index = INDEX_DECODER.decode(encoded)
    except msgspec.DecodeError as error:
        raise _damaged(file) from error
    return {region: blocks for region, blocks in index.items() if region in regions}


def _read_blocks(file: ShuffleFile, blocks: Sequence[Block]) -> Iterator[bytes]:
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
    unpack, header, at, resource = HEADER.unpack_from, HEADER.size, 0, NO_RESOURCE
    while at < len(data):
        kind, size, trace_hash, own_hash = unpack(data, at)
        at += header
        encoded = view[at : at + size]
        at += size
        if kind == RESOURCE:
            resource = RESOURCE_DECODER.decode(encoded)
        else:
            yield Entry(kind, trace_hash, own_hash, size + OVERHEAD, encoded, resource)
