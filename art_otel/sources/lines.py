"""Lines of a stream, numbered from 1, with a bound on what is held in memory."""

import io
from collections.abc import Iterator
from typing import Final

_BLOCK_BYTES: Final = 1 << 19


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped.

    `is_ascii` says that the line given last is ASCII; False: it may be none. It is asked of the bytes as they are read,
    because bytes of a long line have left the processor's cache when it ends.
    """

    def __init__(self, stream: io.BufferedReader, limit: int) -> None:
        self.is_ascii = False
        self._stream = stream
        self._limit = limit
        self._pieces: list[bytes] = []  # of a line that has not ended; it costs a third of the time that readline takes
        self._length = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        number, were_ascii = 1, True
        while block := self._stream.read1(_BLOCK_BYTES):
            are_ascii, start = block.isascii(), 0
            while end := block.find(b"\n", start) + 1:
                self._add(block[start:end])
                self.is_ascii, were_ascii = were_ascii and are_ascii, True
                yield from self._line(number, self._length - 1)
                number, start = number + 1, end
            self._add(block[start:])
            were_ascii = were_ascii and are_ascii
            if self._length > self._limit:
                self._pieces.clear()
        self.is_ascii = were_ascii
        if self._length:
            yield from self._line(number, self._length)

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._length += len(piece)

    def _line(self, number: int, length: int) -> Iterator[tuple[int, bytes | None]]:
        """The line of the pieces, of which `length` bytes count."""
        line = b"".join(self._pieces) if length <= self._limit else None
        self._pieces.clear()
        self._length = 0
        if line is None:
            yield number, None
        elif not line.isspace():
            yield number, line
