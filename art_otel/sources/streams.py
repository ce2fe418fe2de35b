"""The bytes of one input: counted as they are read, decompressed by what they are and not by a file's name.

Invariant: a compressed stream that ends too early or is broken gives all bytes before that place and then ends;
`DumpStream.failure` says what happened. Only a file that the system cannot read raises SourceError.
"""

import contextlib
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, cast

from art_otel.errors import SourceError
from art_otel.sources.inputs import Input
from art_otel.sources.limits import Limits
from art_otel.spans import DamageReason

HEAD_BYTES: Final = 1 << 20
CHUNK_BYTES: Final = 64 << 10
GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

_Fill: TypeAlias = Callable[[memoryview], int]
"""Writes bytes into a buffer and says how many; 0 at the end."""


class _Peekable(io.RawIOBase):
    """A raw stream whose first bytes can be looked at before they are read."""

    def __init__(self, fill: _Fill) -> None:
        super().__init__()
        self._fill = fill
        self._seen = b""

    def readable(self) -> bool:
        """True: it is there to be read."""
        return True

    def head(self, size: int) -> bytes:
        """The first bytes, fewer than `size` only when there are no more."""
        while len(self._seen) < size:
            buffer = memoryview(bytearray(size - len(self._seen)))
            count = self._fill(buffer)
            if not count:
                break
            self._seen += bytes(buffer[:count])
        return self._seen

    def readinto(self, buffer: object, /) -> int:
        """As io.RawIOBase: fill the buffer, 0 at the end."""
        target = memoryview(cast(bytearray, buffer)).cast("B")
        if not self._seen:
            return self._fill(target)
        count = min(len(target), len(self._seen))
        target[:count] = self._seen[:count]
        self._seen = self._seen[count:]
        return count


class DumpStream(_Peekable):
    """The decompressed bytes of an input. `failure` is set when they end before their end."""

    def __init__(self, raw: _Peekable, limits: Limits) -> None:
        magic = raw.head(len(ZSTD_MAGIC))
        self.compression: str | None = None
        self.failure: tuple[DamageReason, str] | None = None
        self._left = limits.max_decompressed_bytes
        self._decompress: _Fill = raw.readinto
        if magic.startswith(GZIP_MAGIC):
            self.compression, self._decompress = "gzip", _gunzip(raw)
        elif magic == ZSTD_MAGIC:
            self.compression, self._decompress = "zstd", _unzstd(raw, self._fail)
        super().__init__(self._bounded)

    def _fail(self, reason: DamageReason, detail: str) -> None:
        self.failure = (reason, detail)

    def _bounded(self, buffer: memoryview) -> int:
        if self.failure:
            return 0
        try:
            count = self._decompress(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._fail("torn", f"the {self.compression} stream is cut or broken here: {error}")
            return 0
        if self.compression:
            self._left -= count
        if self._left < 0:
            self._fail("over a limit", "it decompresses to more than Limits.max_decompressed_bytes")
            return 0
        return count


def _gunzip(raw: _Peekable) -> _Fill:
    """Several members one after the other are one stream."""
    stream = gzip.GzipFile(fileobj=io.BufferedReader(raw, CHUNK_BYTES))

    def fill(buffer: memoryview) -> int:
        data = stream.read1(len(buffer))  # read1 gives what there is before the next read raises
        buffer[: len(data)] = data
        return len(data)

    return fill


def _unzstd(raw: _Peekable, fail: Callable[[DamageReason, str], None]) -> _Fill:
    """Several frames one after the other are one stream."""
    import pyarrow as pa  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # slow to load, and it has none

    arrow = cast(Any, pa)
    stream: io.FileIO = arrow.CompressedInputStream(arrow.PythonFile(io.BufferedReader(raw, CHUNK_BYTES), "r"), "zstd")

    def fill(buffer: memoryview) -> int:
        # A read that fails has already written what it could, but does not say how much. 0xff ends neither a
        # text nor, but for a rare last number, a protobuf message, so it marks what was not written.
        buffer[:] = b"\xff" * len(buffer)
        try:
            return stream.readinto(buffer)
        except OSError as error:
            fail("torn", f"the zstd stream is cut or broken here: {error}")
            return len(bytes(buffer).rstrip(b"\xff"))

    return fill


@contextlib.contextmanager
def open_input(source: Input, limits: Limits, consumed: Callable[[int], None]) -> Generator[DumpStream]:
    """Open an input; `consumed` is told how many (compressed) bytes each read took. Raises SourceError."""
    with contextlib.ExitStack() as stack:
        file = cast(io.RawIOBase, sys.stdin.buffer)
        if source.path is not None:
            try:
                file = stack.enter_context(source.path.open("rb", buffering=0))
            except OSError as error:
                raise SourceError(f"{source.name}: cannot be opened ({error.strerror}); check the path") from error

        def fill(buffer: memoryview) -> int:
            try:
                count = file.readinto(buffer) or 0
            except OSError as error:
                raise SourceError(f"{source.name}: cannot be read ({error.strerror}); check the file") from error
            consumed(count)
            return count

        yield DumpStream(_Peekable(fill), limits)
