"""The bytes of one input: counted as they are read, decompressed by what they are and not by a file's name.

Invariant: a compressed stream that ends too early or is broken gives all bytes before that place and then ends;
`OpenInput.failures` says what happened. Only a file that cannot be read at all raises SourceError.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Final, cast

from art_otel.errors import SourceError
from art_otel.sources.files.decompress import Failure, bounded, compression_of, decompress
from art_otel.sources.files.inputs import ByteRange, Input
from art_otel.sources.files.prefetch import Prefetcher
from art_otel.sources.limits import Limits

HEAD_BYTES: Final = 1 << 20
_STDIN: Final = 0

Consumed = Callable[[int], None]


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
            pieces = decompress(self.stream, limits.max_message_bytes, fail)
            pieces = bounded(pieces, limits.max_decompressed_bytes, fail)
            if byte_range is not None and byte_range.is_decompressed:
                pieces = _behind(pieces, byte_range.start)
            self.stream = io.BufferedReader(_Pieces(pieces), HEAD_BYTES)

    @property
    def became_shorter(self) -> bool:
        """Whether it ended before the size that it had when it was found."""
        return self._raw.became_shorter


class _Raw(io.RawIOBase):
    """Fills each buffer as far as the bytes go, so that the first bytes of all can be looked at together."""

    became_shorter = False

    def readable(self) -> bool:
        """True: it is there to be read."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """As io.RawIOBase."""
        target = memoryview(cast(bytearray, buffer)).cast("B")
        filled = 0
        while filled < len(target) and (count := self._fill(target[filled:])):
            filled += count
        return filled

    def _fill(self, target: memoryview) -> int:
        raise NotImplementedError


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


@contextlib.contextmanager
def open_input(
    source: Input, limits: Limits, consumed: Consumed, prefetcher: Prefetcher | None = None
) -> Generator[OpenInput]:
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


def _behind(pieces: Iterator[bytes], start: int) -> Iterator[bytes]:
    """The bytes from `start` on."""
    for piece in pieces:
        if len(piece) > start:
            yield piece[start:]
        start = max(0, start - len(piece))


def _counted(chunks: Iterator[bytes], consumed: Consumed) -> Iterator[bytes]:
    for chunk in chunks:
        consumed(len(chunk))
        yield chunk
