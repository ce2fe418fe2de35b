"""Buckets: records divided by trace, encoded in memory while they are few and in files once they are many.

Invariant: all records of a trace are in one bucket, whatever the order they came in, and a bucket can be read without
the others. Memory holds about `budget` bytes of records at most, and once that was too little, a piece of each bucket.

A bucket is a sequence of entries: a header (mark, bytes of the echoes, bytes of the record, what those are when nothing
of it is condensed, a checksum of the trace), the echoes that belong to a span, and the record, both in MessagePack. A
resource that is worth it is an entry of its own, and spans that stand behind it without theirs have it, up to the next.
"""

import io
import struct
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from art_otel.engines.condense import Condenser, Echo, Expander
from art_otel.sources import Limits
from art_otel.spans import Damage, LogRecord, Resource, Span

Record: TypeAlias = Span | LogRecord | Damage


class Stored(msgspec.Struct, frozen=True, tag=True):
    """Records in a file. `size` is their bytes when nothing is condensed."""

    path: str
    size: int


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


BUCKET_VERSION: Final = 4
"""Goes up with every change to what stands in a bucket, so that nobody takes up one that reads otherwise."""

_HEADER: Final = struct.Struct("<cIIQI")
_KINDS: Final[dict[bytes, type[Record]]] = {b"s": Span, b"l": LogRecord, b"d": Damage}
_MARKS: Final = {kind: mark for mark, kind in _KINDS.items()}
_DECODERS: Final = {mark: msgspec.msgpack.Decoder(kind) for mark, kind in _KINDS.items()}
_RESOURCE: Final = b"r"
_BEHIND_RESOURCE: Final = b"S"
_SPANS: Final = (b"s", _BEHIND_RESOURCE)
_DECODERS[_BEHIND_RESOURCE] = _DECODERS[b"s"]
_RESOURCE_DECODER: Final = msgspec.msgpack.Decoder(Resource)
_LARGE_RESOURCE: Final = 64
"""Bytes of a resource that is worth an entry: each span has one, and most have the same."""

_ECHOES_DECODER: Final = msgspec.msgpack.Decoder(tuple[Echo, ...])
_READ: Final = 1 << 20
_PIECE: Final = 1 << 18
"""Bytes that are written at once: more would take memory that the system has to give first, fewer more calls of it."""

_NO_RESOURCE: Final = Resource()

_OVERHEAD: Final = 100
"""Bytes that Python needs for a record besides its encoding."""


class _Identified(msgspec.Struct, array_like=True):
    """The first two fields of a span, and of a log record."""

    trace_id: str
    span_id: str


_IDENTIFIED: Final = msgspec.msgpack.Decoder(_Identified)


class Buckets:
    """`count` buckets. `folder` holds what does not fit into `budget` bytes, all when it is 0; it is the caller's."""

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
        self._seen = Resource()
        self._large: bytes | None = None  # the resource seen last, where it is worth an entry
        self._last: list[bytes | None] = [None] * count  # the resource that stands last in each bucket

    def add(self, bucket: int, record: Record) -> None:
        """Put a record into a bucket."""
        encode = self._encoder.encode
        saved, encoded_echoes, mark = 0, b"", _MARKS[type(record)]
        if isinstance(record, Span):
            record, echoes, saved = self._condenser.condense(record)
            if echoes:
                encoded_echoes = encode(echoes)
            if (resource := self._large_resource(record)) is not None:
                self._add_resource(bucket, resource)
                mark, saved = _BEHIND_RESOURCE, saved + len(resource)
                record = msgspec.structs.replace(record, resource=_NO_RESOURCE)
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

    def _large_resource(self, span: Span) -> bytes | None:
        """The span's resource, encoded; None where it may stand in the span. Those of a request are one object."""
        if span.resource is not self._seen:
            self._seen = span.resource
            encoded = self._encoder.encode(span.resource)
            self._large = encoded if len(encoded) >= _LARGE_RESOURCE else None
        return self._large

    def _add_resource(self, bucket: int, resource: bytes) -> None:
        """Put a resource before the spans that have it, unless it is the one that stands there."""
        if self._last[bucket] != resource:
            self._last[bucket] = resource
            self._parts[bucket] += (_HEADER.pack(_RESOURCE, 0, len(resource), 0, 0), b"", resource)
            self._held[bucket] += len(resource) + _OVERHEAD
            self._total += len(resource) + _OVERHEAD

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
        return (Stored(str(path), size),)

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
        expander, resource = Expander(), _NO_RESOURCE
        for mark, echoes, encoded, _ in _entries(piece, checksums):
            if mark == _RESOURCE:
                resource = _RESOURCE_DECODER.decode(encoded)
                continue
            record = _DECODERS[mark].decode(encoded)
            if traces is not None and record.trace_id not in traces:
                continue
            if mark == _BEHIND_RESOURCE:
                msgspec.structs.force_setattr(record, "resource", resource)  # nobody else has the span yet
            if echoes and isinstance(record, Span):
                record = expander.expand(record, _ECHOES_DECODER.decode(echoes))
            yield record


def size_of(content: Content) -> int:
    """How many bytes the records of a bucket have when nothing is condensed."""
    return sum(piece.size for piece in content)


class Weight(msgspec.Struct, kw_only=True):
    """How much there is of some traces.

    `spans` and `logs` count deliveries; `different` spans and their `bytes` count each once, however often it came.
    """

    spans: int = 0
    logs: int = 0
    different: int = 0
    bytes: int = 0

    def __add__(self, other: "Weight") -> "Weight":
        """Both together."""
        return Weight(
            spans=self.spans + other.spans,
            logs=self.logs + other.logs,
            different=self.different + other.different,
            bytes=self.bytes + other.bytes,
        )


def weigh_traces(content: Content, most: int) -> dict[str, Weight]:
    """How much there is of each trace (damages weigh nothing), found with memory for the ids of `most` spans of each.

    What is beyond so many counts as different.
    """
    weights: dict[str, Weight] = {}
    seen: dict[tuple[str, bool], dict[int, int]] = {}
    for mark, _, encoded, size in chain.from_iterable(map(_entries, content)):
        if mark == _RESOURCE:
            continue
        if mark == b"d":
            weights.setdefault(str(_DECODERS[mark].decode(encoded).trace_id), Weight())
            continue
        known = _IDENTIFIED.decode(encoded)
        weight = weights.setdefault(known.trace_id, Weight())
        is_span = mark in _SPANS
        sizes = seen.setdefault((known.trace_id, is_span), {})
        weight.spans += is_span
        weight.logs += not is_span
        key = hash(known.span_id if is_span else encoded)
        before = sizes.get(key)
        weight.different += is_span and before is None
        weight.bytes += max(0, size - (before or 0))
        if before is not None or len(sizes) <= most:
            sizes[key] = max(size, before or 0)
    return weights


def _entries(
    piece: Stored | Held, checksums: Container[int] | None = None
) -> Iterator[tuple[bytes, bytes, bytes, int]]:
    """The mark, echoes, record and size of each entry, where checksums are named of those traces and of resources."""
    with io.BytesIO(piece.data) if isinstance(piece, Held) else Path(piece.path).open("rb", buffering=_READ) as file:
        read, unpack, header_size = file.read, _HEADER.unpack, _HEADER.size
        while header := read(header_size):
            mark, echoes, length, size, checksum = unpack(header)
            if checksums is not None and checksum not in checksums and mark != _RESOURCE:
                file.seek(echoes + length, io.SEEK_CUR)
                continue
            yield mark, read(echoes) if echoes else b"", read(length), size
