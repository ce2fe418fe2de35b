"""Buckets: records divided by trace, encoded in memory while they are few and in files once they are many.

Invariant: all records of a trace are in one bucket, whatever the order they came in, and a bucket can be read without
the others. Memory holds about `budget` bytes of records at most.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from art_otel.spans import Damage, LogRecord, Span

Record: TypeAlias = Span | LogRecord | Damage


class Stored(msgspec.Struct, frozen=True, tag=True):
    """Records in a file."""

    path: str


class Held(msgspec.Struct, frozen=True, tag=True):
    """Records that never left memory."""

    data: bytes


Content: TypeAlias = tuple[Stored | Held, ...]
"""A bucket as plain values."""

_HEADER: Final = struct.Struct("<cI")
_KINDS: Final[dict[bytes, type[Record]]] = {b"s": Span, b"l": LogRecord, b"d": Damage}
_MARKS: Final = {kind: mark for mark, kind in _KINDS.items()}
_DECODERS: Final = {mark: msgspec.msgpack.Decoder(kind) for mark, kind in _KINDS.items()}
_READ: Final = 1 << 20
_OVERHEAD: Final = 100
"""Bytes that Python needs for a record besides its encoding."""


class _Traced(msgspec.Struct, array_like=True):
    """What counting needs of a span or log record: their first field."""

    trace_id: str


_TRACED: Final = msgspec.msgpack.Decoder(_Traced)


class Buckets:
    """`count` buckets. `folder` holds what does not fit into `budget` bytes and belongs to the caller."""

    def __init__(self, folder: Path, count: int, budget: int) -> None:
        self.count = count
        self._folder = folder
        self._budget = budget
        self._held = 0
        self._parts: list[list[bytes]] = [[] for _ in range(count)]
        self._encoder = msgspec.msgpack.Encoder()

    def add(self, bucket: int, record: Record) -> None:
        """Put a record into a bucket."""
        encoded = self._encoder.encode(record)
        self._parts[bucket] += (_HEADER.pack(_MARKS[type(record)], len(encoded)), encoded)
        self._held += len(encoded) + _OVERHEAD
        if self._held > self._budget:
            self.flush()

    def flush(self) -> None:
        """Move what memory holds into the buckets' files."""
        for bucket, part in enumerate(self._parts):
            if part:
                with self._path(bucket).open("ab") as file:
                    file.writelines(part)
                part.clear()
        self._held = 0

    @property
    def spilled(self) -> bool:
        """Whether anything stands in a file."""
        return any(self._path(bucket).exists() for bucket in range(self.count))

    def content(self, bucket: int) -> Content:
        """What is in a bucket."""
        path = self._path(bucket)
        held = b"".join(self._parts[bucket])
        return (*([Stored(str(path))] if path.exists() else ()), *([Held(held)] if held else ()))

    def _path(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket:05d}"


def bucket_of(trace_id: str, count: int) -> int:
    """The bucket of a trace, the same in every process and run."""
    return zlib.crc32(trace_id.encode()) % count


def read_bucket(content: Content) -> Iterator[Record]:
    """Read a bucket's records: those of its files, then those held in memory."""
    for mark, encoded in _encoded(content):
        yield _DECODERS[mark].decode(encoded)


def size_of(content: Content) -> int:
    """How many bytes are in a bucket."""
    return sum(len(piece.data) if isinstance(piece, Held) else Path(piece.path).stat().st_size for piece in content)


@dataclass(kw_only=True, slots=True)
class Weight:
    """How much there is of a trace."""

    spans: int = 0
    logs: int = 0
    bytes: int = 0


def weigh_traces(content: Content) -> dict[str, Weight]:
    """How much there is of each trace (damages take little), found with memory for one record."""
    weights: dict[str, Weight] = {}
    for mark, encoded in _encoded(content):
        if mark == b"d":
            continue
        weight = weights.setdefault(_TRACED.decode(encoded).trace_id, Weight())
        weight.spans += mark == b"s"
        weight.logs += mark == b"l"
        weight.bytes += len(encoded)
    return weights


def _encoded(content: Content) -> Iterator[tuple[bytes, bytes]]:
    for piece in content:
        with (
            io.BytesIO(piece.data) if isinstance(piece, Held) else Path(piece.path).open("rb", buffering=_READ) as file
        ):
            while header := file.read(_HEADER.size):
                mark, length = _HEADER.unpack(header)
                yield mark, file.read(length)
