"""Lines of a stream, numbered from 1, with a bound on what is held in memory; and what goes on over several lines."""

import io
import re
from collections.abc import Iterator
from typing import Final

_BLOCK_BYTES: Final = 1 << 19
LOOKAHEAD: Final = 1 << 12


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped.

    `is_ascii` says that the line given last is ASCII; False: it may be none. It is asked of the bytes as they are read,
    because bytes of a long line have left the processor's cache when it ends.
    """

    def __init__(self, stream: io.BufferedReader, limit: int) -> None:
        self.is_ascii = False
        self._stream = stream
        self._limit = limit
        self._block = b""
        self._at = 0  # where the unread rest of the block begins, in line `_number`
        self._number = 1
        self._pieces: list[bytes] = []  # of a line that has not ended; it costs a third of the time that readline takes
        self._length = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        were_ascii = True
        while self._fill():
            block, start, are_ascii = self._block, self._at, self._block.isascii()
            while end := block.find(b"\n", start) + 1:
                self._add(block[start:end])
                self.is_ascii, were_ascii = were_ascii and are_ascii, True
                number, self._number, self._at = self._number, self._number + 1, end
                yield from self._line(number, self._length - 1)
                if self._block is not block:  # `up_to` went on from here
                    block, are_ascii = self._block, self._block.isascii()
                start = self._at
            self._add(block[start:])
            self._at = len(block)
            were_ascii = were_ascii and are_ascii
            if self._length > self._limit:
                self._pieces.clear()
        self.is_ascii = were_ascii
        if self._length:
            yield from self._line(self._number, self._length)

    def up_to(self, begins: re.Pattern[bytes], line: bytes, limit: int) -> bytes | None:
        """The line given last, and all behind it up to where `begins` matches next: from there the lines go on.

        None: that is longer than `limit`, and was skipped. What matches need not be seen beyond LOOKAHEAD bytes.
        """
        data, first = self._block, self._at - len(line)
        if first < 0 or not data.startswith(line, first):
            data, first = line + data[self._at :], 0
        behind = first + len(line)
        if len(data) - behind < LOOKAHEAD:
            data, behind, first = data[first:] + self._stream.read(max(_BLOCK_BYTES, LOOKAHEAD)), behind - first, 0
        own = begins.search(data, first, behind + LOOKAHEAD)
        start = max(behind, own.end() if own and own.start() < behind else 0)
        taken: list[bytes] = []
        size, lines = 0, -line.count(b"\n")
        while (found := begins.search(data, start)) is None and (more := self._stream.read(_BLOCK_BYTES)):
            done = max(start, len(data) - LOOKAHEAD)
            taken.append(data[first:done])
            lines += taken[-1].count(b"\n")
            size += len(taken[-1])
            data, first, start = data[done:] + more, 0, 0
            if size > limit:
                taken.clear()
        end = found.start() if found else len(data)
        taken.append(data[first:end])
        self._number += lines + taken[-1].count(b"\n")
        self._block, self._at = data, end
        return b"".join(taken) if size + len(taken[-1]) <= limit else None

    def _fill(self) -> bool:
        """Hold the next bytes; False at the end of the stream."""
        if self._at == len(self._block):
            self._block, self._at = self._stream.read1(_BLOCK_BYTES), 0
        return bool(self._block)

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
