"""Lines of a stream, numbered from 1, with a bound on what is held in memory; and what goes on over several lines."""

import io
import re
from collections.abc import Iterator
from typing import Final

_BLOCK_BYTES: Final = 1 << 19
_LOOK: Final = 64
"""Bytes that tell of most lines that they are not blank."""

_KEPT: Final = 32 << 20
"""Bytes of a long line that may be kept for the next one; more are given back."""

_BLANK_LINES: Final = re.compile(rb"(?:[^\S\n]*+\n)*+")
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
        self._long = bytearray()  # holds what earlier blocks had of a line that has not ended
        self._length = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        for number, line in self.views():
            yield number, None if line is None else bytes(line)

    def views(self) -> Iterator[tuple[int, memoryview | None]]:
        """The lines, each good until the next one is asked for.

        Long ones stand one after the other in the same memory: to get it from the system anew for each takes a tenth of
        a conversion.
        """
        were_ascii = True
        while self._fill():
            block, start, are_ascii = self._block, self._at, self._block.isascii()
            while end := block.find(b"\n", start) + 1:
                line = self._end(memoryview(block)[start:end], 1)
                self.is_ascii, were_ascii = were_ascii and are_ascii, True
                number, self._number, self._at = self._number, self._number + 1, end
                if line is None or not _is_blank(line):
                    yield number, line
                else:
                    self._pass_blank_lines()
                if self._block is not block:  # `up_to` went on from here
                    block, are_ascii = self._block, self._block.isascii()
                start = self._at
            self._keep(memoryview(block)[start:])
            self._at = len(block)
            were_ascii = were_ascii and are_ascii
        self.is_ascii = were_ascii
        line = self._end(memoryview(b""), 0)
        if line is None or not _is_blank(line):
            yield self._number, line

    def _pass_blank_lines(self) -> None:
        """Go on behind all that the block has here: somebody may write millions."""
        found = _BLANK_LINES.match(self._block, self._at)
        end = found.end() if found else self._at
        self._number += self._block.count(b"\n", self._at, end)
        self._at = end

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

    def _end(self, rest: memoryview, newline: int) -> memoryview | None:
        """The line that ends with `rest`, of which `newline` bytes do not count; None when it is too long."""
        if not self._length:
            line = rest
        else:
            self._keep(rest)
            line = memoryview(self._long)[: self._length]
        length, self._length = self._length or len(rest), 0
        if len(self._long) > _KEPT:
            self._long = bytearray()
        return line if length - newline <= self._limit else None

    def _keep(self, piece: memoryview) -> None:
        """Hold the next piece of a line, as long as it may be given."""
        start, self._length = self._length, self._length + len(piece)
        if self._length > self._limit + 1:
            return
        if self._length > len(self._long):
            longer = bytearray(max(self._length, len(self._long) * 3 // 2))
            longer[:start] = memoryview(self._long)[:start]
            self._long = longer
        self._long[start : self._length] = piece


def _is_blank(line: memoryview) -> bool:
    return not line or (bytes(line[:_LOOK]).isspace() and bytes(line).isspace())
