"""Shards: reading some regions of several shuffle files.

Invariant: every block is checked before it is read; one that is not as it was written is a StorageError.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import zstandard

from art_otel import storage
from art_otel.engines.shards.shuffle_file import (
    DECODERS,
    HEADER,
    INDEX_DECODER,
    KINDS,
    RESOURCE,
    RESOURCE_DECODER,
    Block,
    Index,
    ShuffleFile,
    Stored,
)
from art_otel.errors import StorageError
from art_otel.spans import Resource, Span

_BUFFER: Final = 256 << 10


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


def _located(file: ShuffleFile, regions: Collection[int]) -> Index:
    try:
        index = INDEX_DECODER.decode(storage.read(file.location, file.index_start, file.size))
    except msgspec.DecodeError as error:
        raise _changed(file) from error
    return {region: blocks for region, blocks in index.items() if region in regions}


def _read_blocks(file: ShuffleFile, blocks: Iterable[tuple[Block, int]]) -> Iterator[tuple[int, bytes]]:
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
        header, resource = HEADER.size, Resource()
        self._start = self._end = 0
        with self._decompressor.stream_reader(block) as stream:
            while self._hold(header, stream):
                kind, size = HEADER.unpack_from(self._buffer, self._start)
                self._hold(header + size, stream)
                encoded = memoryview(self._buffer)[self._start + header : self._start + header + size]
                self._start += header + size
                if kind == RESOURCE:
                    resource = RESOURCE_DECODER.decode(encoded)
                    continue
                records = DECODERS[kind].decode(encoded)
                if kind == KINDS[Span]:
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
