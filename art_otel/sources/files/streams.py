"""The bytes of one input: fetched ahead, counted as they are read, decompressed by what they are and not by a name.

Files of stores are fetched in chunks; while one chunk is worked on, the next ones, of the same file or of those that
follow it, are on their way. So many small objects cost their bytes and not a round trip each.

Invariant: a compressed stream that ends too early or is broken gives all bytes before that place and then ends;
`OpenInput.failures` says what happened. Only a file that cannot be read at all raises SourceError. A piece is at most
what a few KiB of a file decompress to (some 100 MiB), and at most `CHUNKS` chunks are held.
"""

import contextlib
import io
import os
import sys
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, cast

import zstandard

from art_otel.errors import SourceError
from art_otel.sources.files.inputs import ByteRange, Input
from art_otel.sources.files.stores import StoredFile, read_range
from art_otel.sources.format import Limits, advice
from art_otel.spans import QuarantineReason

HEAD_BYTES: Final = 1 << 20
CHUNK_BYTES: Final = 4 << 20
CHUNKS: Final = 8
GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
PARQUET_MAGICS: Final = (b"PAR1", b"PARE")
"""The second one begins a file whose footer is encrypted."""

_STDIN: Final = 0
_GZIP_BYTES: Final = 16 << 10
_ZSTD_BYTES: Final = 4 << 10
_GZIP_WINDOW: Final = 31
_SKIPPABLE: Final = frozenset(bytes([low]) for low in range(0x50, 0x60))

Consumed = Callable[[int], None]


class Failure(NamedTuple):
    """What could not be read of a stream; `location` is inside the file, empty for its end."""

    reason: QuarantineReason
    detail: str
    location: str = ""


Fail: TypeAlias = Callable[[Failure], None]


@contextlib.contextmanager
def open_input(
    source: Input, limits: Limits, consumed: Consumed, prefetcher: "Prefetcher | None" = None
) -> "Generator[OpenInput]":
    """Open an input; `consumed` is told how many (compressed) bytes each read took. Raises SourceError.

    `prefetcher` fetches what is in a store, together with other files; without it this file is fetched alone.
    """
    with contextlib.ExitStack() as stack:
        if source.stored is not None:
            prefetcher = prefetcher or stack.enter_context(Prefetcher([source]))
            chunks = stack.enter_context(contextlib.closing(prefetcher.chunks(source)))
            yield OpenInput(_Pieces(_counted(chunks, consumed)), limits)
            return
        file = _File(stack.enter_context(open_unbuffered(source)), source, consumed)
        yield OpenInput(file, limits, source.byte_range)


class OpenInput:
    """An input that is read. `stream` gives its decompressed bytes; its first `peek` shows HEAD_BYTES of them.

    `failures` says what could not be read. `became_shorter` is known when it was read to its end.
    """

    def __init__(self, raw: "_Raw", limits: Limits, byte_range: ByteRange | None = None) -> None:
        self.stream: io.BufferedReader = io.BufferedReader(raw, HEAD_BYTES)
        self.failures: list[Failure] = []
        self.compression = compression_of(self.stream.peek())
        self._raw = raw
        if self.compression in ("gzip", "zstd"):
            fail = self.failures.append
            pieces = _bounded(_decompress(self.stream, fail), limits.max_decompressed_bytes, fail)
            if byte_range is not None and byte_range.is_decompressed:
                pieces = _behind(pieces, byte_range.start)
            self.stream = io.BufferedReader(_Pieces(pieces), HEAD_BYTES)

    @property
    def became_shorter(self) -> bool:
        """Whether it ended before the size that it had when it was found."""
        return self._raw.became_shorter


def compression_of(head: bytes) -> str | None:
    """Name the compression of a file by its first bytes; None for none."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    if head.startswith(PARQUET_MAGICS):
        return "parquet"
    is_skippable = head[:1] in _SKIPPABLE and head[1:4] == b"\x2a\x4d\x18"  # pzstd begins so; RFC 8878, 3.1.2
    return "zstd" if is_skippable or head.startswith(ZSTD_MAGIC) else None


def open_unbuffered(source: Input) -> io.FileIO:
    """An input of this machine, also standard input and pipes. Raises SourceError."""
    if source.path is None:
        return _standard_input()
    try:
        return source.path.open("rb", buffering=0)
    except OSError as error:
        raise SourceError(f"{source.name}: cannot be opened ({error.strerror}); check the path") from error


def _standard_input() -> io.FileIO:
    """Standard input as this process inherited it."""
    closed = "standard input is closed; pipe a dump into the command, or name a file"
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] # it was closed, and 0 may be another file
        raise SourceError(closed)
    try:
        if sys.platform != "win32":
            os.set_blocking(_STDIN, True)  # else what comes late looks like the end
        return open(_STDIN, "rb", buffering=0, closefd=False)
    except OSError as error:
        raise SourceError(f"{closed} ({error.strerror})") from error


class _Raw(io.RawIOBase):
    """Fills each buffer as far as the bytes go, so that the first bytes of all can be looked at together."""

    became_shorter = False

    def readable(self) -> bool:
        """True: it is there to be read."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """Fill the buffer; return the number of bytes written to it, 0 at the end (see io.RawIOBase)."""
        target = memoryview(cast(bytearray, buffer)).cast("B")
        filled = 0
        while filled < len(target) and (count := self._fill(target[filled:])):
            filled += count
        return filled

    def _fill(self, target: memoryview) -> int:
        raise NotImplementedError


class _File(_Raw):
    """A file of this machine, or the part of it that is to be read."""

    def __init__(self, file: io.FileIO, source: Input, consumed: Consumed) -> None:
        self._file = file
        self._name = source.name
        self._consumed = consumed
        byte_range = source.byte_range
        self._is_part = byte_range is not None and not byte_range.is_decompressed
        self._left = source.size or 0
        if byte_range is not None and self._is_part:
            file.seek(byte_range.start)

    def _fill(self, target: memoryview) -> int:
        try:
            count = self._file.readinto(target[: self._left] if self._is_part else target) or 0
        except OSError as error:
            raise SourceError(f"{self._name}: cannot be read ({error.strerror}); check the file") from error
        self.became_shorter = not count and self._left > 0
        self._left = max(self._left - count, 0)
        self._consumed(count)
        return count


class _Pieces(_Raw):
    """The pieces one after the other."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def _fill(self, target: memoryview) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _counted(chunks: Iterator[bytes], consumed: Consumed) -> Iterator[bytes]:
    for chunk in chunks:
        consumed(len(chunk))
        yield chunk


def _behind(pieces: Iterator[bytes], start: int) -> Iterator[bytes]:
    """The bytes from `start` on."""
    for piece in pieces:
        if len(piece) > start:
            yield piece[start:]
        start = max(0, start - len(piece))


def _decompress(stream: io.BufferedReader, fail: Fail) -> Iterator[bytes]:
    """Decompress a gzip or zstd stream."""
    if stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return _members(stream, _GZIP_BYTES, lambda: zlib.decompressobj(_GZIP_WINDOW), fail)
    return _members(stream, _ZSTD_BYTES, zstandard.ZstdDecompressor().decompressobj, fail)


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _members(stream: io.BufferedIOBase, size: int, make: Callable[[], _Member], fail: Fail) -> Iterator[bytes]:
    """Decompress the members (frames) of a file one after the other; `size` compressed bytes are read at once."""
    member: _Member | None = None
    try:
        while data := stream.read(size):
            while data := data if member else data.lstrip(b"\0"):  # some fill a file up with zeros
                member = member or make()
                yield member.decompress(data)
                data = member.unused_data if member.eof else b""
                member = None if member.eof else member
    except (zlib.error, zstandard.ZstdError) as error:
        fail(Failure("torn", f"the compressed stream is broken here: {error}"))
    else:
        if member is not None:
            fail(Failure("torn", "the compressed stream is cut here"))


def _bounded(pieces: Iterator[bytes], limit: int, fail: Fail) -> Iterator[bytes]:
    """Pass the pieces on, up to `limit` bytes."""
    left = limit
    for piece in pieces:
        if len(piece) > left:
            yield piece[:left]
            detail = f"it decompresses to more than {limit} bytes; {advice('max_decompressed_bytes')}"
            fail(Failure("over a limit", detail))
            return
        left -= len(piece)
        yield piece


class Prefetcher:
    """Use it as a context manager. Inputs are read in the order they are given; each may be left at any place."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._left: set[Input] = set()
        self._waiting = self._ranges(inputs)
        self._coming: deque[tuple[Input, Future[bytes]]] = deque()
        self._pool = ThreadPoolExecutor(CHUNKS, "art-otel-prefetch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def chunks(self, source: Input) -> Generator[bytes]:
        """Read the bytes of an input that is stored. Raises SourceError."""
        try:
            self._fetch()
            while self._coming and self._coming[0][0] == source:
                yield self._coming.popleft()[1].result()
                self._fetch()
        finally:
            self._left.add(source)

    def _fetch(self) -> None:
        """Keep as many chunks coming as may be held, none of inputs that were left."""
        while self._coming and self._coming[0][0] in self._left:
            self._coming.popleft()[1].cancel()
        while len(self._coming) < CHUNKS and (chunk := next(self._waiting, None)):
            source, stored, start, end = chunk
            self._coming.append((source, self._pool.submit(read_range, stored, start, end)))

    def _ranges(self, inputs: Sequence[Input]) -> Iterator[tuple[Input, StoredFile, int, int]]:
        for source in inputs:
            start, end = (
                (source.byte_range.start, source.byte_range.end) if source.byte_range else (0, source.size or 0)
            )
            while source.stored is not None and start < end and source not in self._left:
                yield source, source.stored, start, min(start + CHUNK_BYTES, end)
                start += CHUNK_BYTES
