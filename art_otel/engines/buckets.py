"""Buckets: records divided by trace, in memory while they are few and in files once they are many.

Invariant: all records of a trace are in one bucket, whatever the order they came in, and a bucket can be read without
the others. Memory holds about `budget` bytes of records at most.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from art_otel.spans import Damage, LogRecord, Span

Record: TypeAlias = Span | LogRecord | Damage

Content: TypeAlias = tuple[Path | None, Sequence[Record]]
"""A bucket as plain values: its file, if it has one, and the records that never left memory."""

_HEADER: Final = struct.Struct("<cI")
_KINDS: Final[dict[bytes, type[Record]]] = {b"s": Span, b"l": LogRecord, b"d": Damage}
_MARKS: Final = {kind: mark for mark, kind in _KINDS.items()}
_RECORD_BYTES: Final = 2_000
"""About what a record takes in memory besides its long texts."""


class Buckets:
    """`count` buckets. `folder` holds what does not fit into `budget` bytes and belongs to the caller."""

    def __init__(self, folder: Path, count: int, budget: int) -> None:
        self.count = count
        self._folder = folder
        self._budget = budget
        self._held = 0
        self._parts: list[list[Record]] = [[] for _ in range(count)]
        self._encoder = msgspec.msgpack.Encoder()

    def bucket_of(self, trace_id: str) -> int:
        """The bucket of a trace, the same in every process and run."""
        return zlib.crc32(trace_id.encode()) % self.count

    def add(self, bucket: int, record: Record) -> None:
        """Put a record into a bucket."""
        self._parts[bucket].append(record)
        self._held += _weigh(record)
        if self._held > self._budget:
            self.flush()

    def flush(self) -> None:
        """Move what memory holds into the buckets' files."""
        for bucket, part in enumerate(self._parts):
            if part:
                with self._path(bucket).open("ab") as file:
                    for record in part:
                        encoded = self._encoder.encode(record)
                        file.write(_HEADER.pack(_MARKS[type(record)], len(encoded)))
                        file.write(encoded)
                part.clear()
        self._held = 0

    def content(self, bucket: int) -> Content:
        """What is in a bucket."""
        path = self._path(bucket)
        return (path if path.exists() else None), self._parts[bucket]

    def _path(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket:05d}"


def _weigh(record: Record) -> int:
    if isinstance(record, Damage):
        return _RECORD_BYTES
    return _RECORD_BYTES + sum(len(value) for value in record.attributes.values() if isinstance(value, str))


def read_bucket(content: Content) -> Iterator[Record]:
    """Read a bucket's records: those of its file, then those held in memory."""
    path, held = content
    if path is not None:
        yield from _decode(path.read_bytes())
    yield from held


def _decode(data: bytes) -> Iterator[Record]:
    decoders = {mark: msgspec.msgpack.Decoder(kind) for mark, kind in _KINDS.items()}
    view, at = memoryview(data), 0
    while at < len(data):
        mark, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield decoders[mark].decode(view[at : at + length])
        at += length
