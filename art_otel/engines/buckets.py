"""Buckets: records divided by trace, encoded in memory while they are few and in files once they are many.

Invariant: all records of a trace are in one bucket, whatever the order they came in, and a bucket can be read without
the others. Memory holds about `budget` bytes of records at most, and once that was too little, a piece of each bucket.

A bucket is a sequence of entries: a header (mark, bytes of the echoes, bytes of the record, what those are when nothing
of it is condensed, a checksum of the trace), the echoes that belong to a span, and the record, both in MessagePack. An
origin that is worth it is an entry of its own, and spans that stand behind it without theirs have it, up to the next.
"""

import io
import struct
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from art_otel.engines.checksum import FileChecksum, synced_checksum
from art_otel.engines.condense import Condenser, Echo, Expander
from art_otel.engines.origin import Origin, OriginFinder
from art_otel.sources import Limits
from art_otel.spans import LogRecord, Quarantined, Span

Record: TypeAlias = Span | LogRecord | Quarantined


class Stored(msgspec.Struct, frozen=True, tag=True):
    """Records in a file, which is on the disk. `size` is their bytes when nothing is condensed."""

    path: str
    size: int
    checksum: FileChecksum


class Held(msgspec.Struct, frozen=True, tag=True):
    """Records that never left memory. `size` is as in Stored."""

    data: bytes
    size: int


Content: TypeAlias = tuple[Stored | Held, ...]
"""A bucket as plain values: a piece a process that wrote into it."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be assembled into the file `run`, one of `runs`.

    `own` holds the bucket's traces, of which those in `moved` were taken to another bucket; `guests` holds traces that
    came from others. `kin` leads a trace to the one that stands for all that are kin to it, `rollouts` to the one that
    stands for those that share a rollout id with it.
    """

    own: Content
    guests: Content
    moved: Sequence[str]
    kin: Mapping[str, str]
    rollouts: Mapping[str, str]
    rollout_spans: Sequence[str]
    limits: Limits
    run: Path
    runs: int = 1


BUCKET_VERSION: Final = 5
"""Goes up with every change to what stands in a bucket, so that nobody takes up one that reads otherwise."""

_HEADER: Final = struct.Struct("<cIIQI")
_SPAN: Final = b"s"
LOG: Final = b"l"
DAMAGE: Final = b"d"
_KINDS: Final[dict[bytes, type[Record]]] = {_SPAN: Span, LOG: LogRecord, DAMAGE: Quarantined}
_MARKS: Final = {kind: mark for mark, kind in _KINDS.items()}
_DECODERS: Final = {mark: msgspec.msgpack.Decoder(kind) for mark, kind in _KINDS.items()}
ORIGIN: Final = b"o"
BEHIND_ORIGIN: Final = b"S"
_DECODERS[BEHIND_ORIGIN] = _DECODERS[_SPAN]
_ORIGIN_DECODER: Final = msgspec.msgpack.Decoder(Origin)
_ECHOES_DECODER: Final = msgspec.msgpack.Decoder(tuple[Echo, ...])
_READ: Final = 1 << 20
_PIECE: Final = 1 << 18
"""Bytes that are written at once: more would take memory that the system has to give first, fewer more calls of it."""

_OVERHEAD: Final = 100
"""Bytes that Python needs for a record besides its encoding."""


class Buckets:
    """`count` buckets. `folder` holds what does not fit into `budget` bytes, all when it is 0; it is the caller's.

    Buckets that stand there already are removed: they are of a task that runs again.
    """

    def __init__(self, folder: Path, count: int, budget: int) -> None:
        self.count = count
        self._folder = folder
        self._budget = budget
        self._spills = budget == 0
        self._total = 0
        self._held = [0] * count
        self._parts: list[list[bytes]] = [[] for _ in range(count)]
        self._sizes = [0] * count
        self._encoder = msgspec.msgpack.Encoder()
        self._condenser = Condenser()
        self._origins = OriginFinder()
        self._last: list[bytes | None] = [None] * count  # the origin that stands last in each bucket
        for bucket in range(count):
            self._path(bucket).unlink(missing_ok=True)

    def add(self, bucket: int, record: Record) -> None:
        """Put a record into a bucket."""
        encode = self._encoder.encode
        saved, encoded_echoes, mark = 0, b"", _MARKS[type(record)]
        if isinstance(record, Span):
            record, echoes, saved = self._condenser.condense(record)
            if echoes:
                encoded_echoes = encode(echoes)
            if (origin := self._origins.of(record)) is not None:
                self._add_origin(bucket, origin)
                mark, record = BEHIND_ORIGIN, self._origins.take_from(record)
        encoded = encode(record)
        length, size = len(encoded), len(encoded) + saved
        header = _HEADER.pack(mark, len(encoded_echoes), length, size, _checksum(record.trace_id))
        self._parts[bucket] += (header, encoded_echoes, encoded)
        self._sizes[bucket] += size
        taken = len(encoded_echoes) + length + _OVERHEAD
        self._held[bucket] += taken
        self._total += taken
        if self._spills and self._held[bucket] > _PIECE:
            self._write(bucket)
        elif not self._spills and self._total > self._budget:
            self._spills = True
            self.flush()

    def _add_origin(self, bucket: int, origin: bytes) -> None:
        """Put an origin before the spans that have it, unless it is the one that stands there."""
        if self._last[bucket] != origin:
            self._last[bucket] = origin
            self._parts[bucket] += (_HEADER.pack(ORIGIN, 0, len(origin), len(origin), 0), b"", origin)
            self._sizes[bucket] += len(origin)
            self._held[bucket] += len(origin) + _OVERHEAD
            self._total += len(origin) + _OVERHEAD

    def flush(self) -> None:
        """Move what memory holds into the buckets' files."""
        for bucket in range(self.count):
            self._write(bucket)

    def _write(self, bucket: int) -> None:
        if part := self._parts[bucket]:
            with self._path(bucket).open("ab", buffering=_PIECE) as file:
                file.writelines(part)
            part.clear()
            self._held[bucket] = 0

    @property
    def spilled(self) -> bool:
        """Whether anything stands in a file."""
        return any(self._path(bucket).exists() for bucket in range(self.count))

    def content(self, bucket: int) -> Content:
        """What is in a bucket."""
        path, part, size = self._path(bucket), self._parts[bucket], self._sizes[bucket]
        if not path.exists():
            return (Held(b"".join(part), size),) if part else ()
        self._write(bucket)
        return (Stored(str(path), size, synced_checksum(path)),)

    def _path(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket:05d}"


def bucket_of(trace_id: str, count: int) -> int:
    """The bucket of a trace, the same in every process and run."""
    return _checksum(trace_id) % count


def _checksum(trace_id: str | None) -> int:
    return zlib.crc32(str(trace_id).encode())


def read_bucket(content: Content, traces: AbstractSet[str | None] | None = None) -> Iterator[Record]:
    """Read a bucket's records, those of these traces only where they are named. Most others are passed over unread."""
    checksums = None if traces is None else frozenset(map(_checksum, traces))
    for piece in content:
        expander, origin = Expander(), Origin()
        for mark, echoes, encoded, _ in entries(piece, checksums):
            if mark == ORIGIN:
                origin = _ORIGIN_DECODER.decode(encoded)
                continue
            record = _DECODERS[mark].decode(encoded)
            if traces is not None and record.trace_id not in traces:
                continue
            if mark == BEHIND_ORIGIN and isinstance(record, Span):
                origin.put_into(record)
            if echoes and isinstance(record, Span):
                record = expander.expand(record, _ECHOES_DECODER.decode(echoes))
            yield record


def size_of(content: Content) -> int:
    """How many bytes the records of a bucket have when nothing is condensed."""
    return sum(piece.size for piece in content)


def entries(piece: Stored | Held, checksums: Container[int] | None = None) -> Iterator[tuple[bytes, bytes, bytes, int]]:
    """The mark, echoes, record and size of each entry, where checksums are named of those traces and of origins."""
    with io.BytesIO(piece.data) if isinstance(piece, Held) else Path(piece.path).open("rb", buffering=_READ) as file:
        read, unpack, header_size = file.read, _HEADER.unpack, _HEADER.size
        while header := read(header_size):
            mark, echoes, length, size, checksum = unpack(header)
            if checksums is not None and checksum not in checksums and mark != ORIGIN:
                file.seek(echoes + length, io.SEEK_CUR)
                continue
            yield mark, read(echoes) if echoes else b"", read(length), size
