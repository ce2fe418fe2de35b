"""The bytes of one input: counted as they are read, decompressed by what they are and not by a file's name.

Invariant: a compressed stream that ends too early or is broken gives all bytes before that place and then ends;
`DumpStream.failures` says what happened. Only a file that cannot be read at all raises SourceError.
"""

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import BinaryIO, Final, cast

from art_otel.errors import SourceError
from art_otel.sources.files.decompress import (
    GZIP_MAGIC,
    PARQUET_MAGICS,
    Failure,
    Fill,
    gunzip,
    is_framed_zstd,
    is_zstd,
    pour,
    unframe_zstd,
    unzstd,
)
from art_otel.sources.files.inputs import Input
from art_otel.sources.files.read_ahead import ReadAhead
from art_otel.sources.limits import ANY_RATIO_BYTES, LimitName, Limits, advice

HEAD_BYTES: Final = 1 << 20
_MAGIC_BYTES: Final = 8
_STDIN: Final = 0


class Peekable(io.RawIOBase):
    """A raw stream whose first bytes can be looked at before they are read. `filled` bytes were taken so far."""

    def __init__(self, fill: Fill) -> None:
        super().__init__()
        self.filled = 0
        self._fill = fill
        self._seen = b""

    def readable(self) -> bool:
        """True: it is there to be read."""
        return True

    def head(self, size: int) -> bytes:
        """The first bytes, fewer than `size` only when there are no more."""
        held = len(self._seen)
        if held < size:
            buffer = memoryview(bytearray(size))
            buffer[:held] = self._seen
            while held < size and (count := self._take(buffer[held:])):
                held += count
            self._seen = bytes(buffer[:held])
        return self._seen

    def readinto(self, buffer: object, /) -> int:
        """As io.RawIOBase: fill the buffer, 0 at the end."""
        target = memoryview(cast(bytearray, buffer)).cast("B")
        if not self._seen:
            return self._take(target)
        count = min(len(target), len(self._seen))
        target[:count] = self._seen[:count]
        self._seen = self._seen[count:]
        return count

    def _take(self, buffer: memoryview) -> int:
        count = self._fill(buffer)
        self.filled += count
        return count


class DumpStream(Peekable):
    """The decompressed bytes of an input, or the rows of a Parquet file as JSON lines.

    `failures` says what could not be read of it. `size` is in bytes where it is known before all is read, `file` is the
    input where it is a file of the system.
    """

    def __init__(
        self, raw: Peekable, limits: Limits, name: str, size: int | None = None, file: BinaryIO | None = None
    ) -> None:
        magic = raw.head(_MAGIC_BYTES)
        self.compression: str | None = None
        self.failures: list[Failure] = []
        self._ended = False
        self._open = contextlib.ExitStack()
        self._limits = limits
        self._raw = raw
        self._size = size or 0
        self._file = file
        self._decompress: Fill = raw.readinto
        fail = self.failures.append
        if magic.startswith(GZIP_MAGIC):
            self.compression, self._decompress = "gzip", gunzip(raw)
        elif is_zstd(magic):
            self.compression, self._decompress = "zstd", unzstd(raw, fail)
        elif is_framed_zstd(magic):
            self.compression, self._decompress = "zstd", unframe_zstd(raw, limits.max_message_bytes, fail)
        elif magic.startswith(PARQUET_MAGICS):
            self.compression, self._decompress = "parquet", self._rows(file or raw, name, limits.max_parquet_memory)
        super().__init__(self._bounded)

    def _rows(self, file: BinaryIO | Peekable, name: str, memory: int) -> Fill:
        from art_otel.sources.files.parquet_process import ParquetProcess, copied_to_disk  # noqa: PLC0415 # few are Parquet

        whole = self._open.enter_context(copied_to_disk(file, name)) if isinstance(file, Peekable) else file
        self._size = max(self._size, os.fstat(whole.fileno()).st_size)
        return self._open.enter_context(ParquetProcess(whole, name, memory, self.failures.append)).readinto

    def is_shorter_than(self, size: int) -> bool:
        """Whether the file has by now fewer bytes."""
        return self._file is not None and os.fstat(self._file.fileno()).st_size < size

    def close(self) -> None:
        """Close what was opened for the decompression."""
        self._open.close()
        super().close()

    def _bounded(self, buffer: memoryview) -> int:
        if self._ended:
            return 0
        try:
            count = self._decompress(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            return self._end(Failure("torn", f"the {self.compression} stream is cut or broken here: {error}"))
        if self.compression:
            most, name = self._bound()
            if self.filled + count > most:
                self._end(Failure("over a limit", f"it decompresses to more than {most} bytes; {advice(name)}"))
                return most - self.filled
        return count

    def _bound(self) -> tuple[int, LimitName]:
        """How much may be decompressed, never less than before, and what says so."""
        read = max(self._raw.filled, self._size)
        ratio = max(ANY_RATIO_BYTES, read * self._limits.max_decompression_ratio)
        most = self._limits.max_decompressed_bytes
        return (most, "max_decompressed_bytes") if most <= ratio else (ratio, "max_decompression_ratio")

    def _end(self, failure: Failure) -> int:
        self._ended = True
        self.failures.append(failure)
        return 0


@contextlib.contextmanager
def open_input(
    source: Input, limits: Limits, consumed: Callable[[int], None], ahead: ReadAhead | None = None
) -> Generator[DumpStream]:
    """Open an input; `consumed` is told how many (compressed) bytes each read took. Raises SourceError.

    `ahead` fetches what is in a store, together with other files; without it this file is fetched alone.
    """
    with contextlib.ExitStack() as stack:
        if source.stored is not None:
            ahead = ahead or stack.enter_context(ReadAhead([source.stored]))
            stream = DumpStream(
                Peekable(_counted(pour(ahead.chunks(source.stored)), consumed)), limits, source.name, source.size
            )
            yield stack.enter_context(stream)
            return
        file = stack.enter_context(_standard_input() if source.path is None else _opened(source.name, source.path))
        raw = Peekable(_counted(_filling(file, source), consumed))
        whole = cast(BinaryIO, file) if source.path is not None and source.size is not None else None
        stream = stack.enter_context(DumpStream(raw, limits, source.name, source.size, whole))
        if whole is not None and stream.compression == "parquet":
            consumed(max((source.size or 0) - len(raw.head(0)), 0))
        yield stream


def _opened(name: str, path: Path) -> io.FileIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise SourceError(f"{name}: cannot be opened ({error.strerror}); check the path") from error


def _standard_input() -> io.FileIO:
    """Standard input as this process inherited it; a worker's `sys.stdin` is empty, and the descriptor is not."""
    closed = "standard input is closed; pipe a dump into the command, or name a file"
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] # it was closed, and 0 may be another file
        raise SourceError(closed)
    try:
        if sys.platform != "win32":
            os.set_blocking(_STDIN, True)  # else what comes late looks like the end
        return open(_STDIN, "rb", buffering=0, closefd=False)
    except OSError as error:
        raise SourceError(f"{closed} ({error.strerror})") from error


def _filling(file: io.RawIOBase, source: Input) -> Fill:
    left = sys.maxsize
    if source.part is not None:
        file.seek(source.part.start)
        left = source.part.end - source.part.start

    def fill(buffer: memoryview) -> int:
        nonlocal left
        try:
            count = file.readinto(buffer[:left]) or 0
        except OSError as error:
            raise SourceError(f"{source.name}: cannot be read ({error.strerror}); check the file") from error
        left -= count
        return count

    return fill


def _counted(fill: Fill, consumed: Callable[[int], None]) -> Fill:
    def counted(buffer: memoryview) -> int:
        count = fill(buffer)
        consumed(count)
        return count

    return counted
