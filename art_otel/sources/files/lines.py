"""Lines of a stream, numbered from 1, with a bound on what is held in memory.

Invariant: all lines stand in one buffer that is filled again and again, as large as the longest of them needs.
"""

import io
from collections.abc import Iterator
from typing import Final

_BUFFER: Final = 1 << 20


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped."""

    def __init__(self, stream: io.BufferedReader | io.BytesIO, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._number = 0
        self._buffer = bytearray(_BUFFER)
        self._start = self._end = 0  # where the unread bytes are
        self._returned: tuple[int, bytes] | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        for number, line in self.views():
            yield number, None if line is None else bytes(line)

    def views(self) -> Iterator[tuple[int, bytes | memoryview | None]]:
        """The lines, each good until the next one is asked for."""
        while self._returned or self._start < self._end or self._fill():
            if self._returned:
                returned, self._returned = self._returned, None
                yield returned
                continue
            self._number += 1
            line = self._next()
            if line is None or not bytes(line[:1]).isspace() or not bytes(line).isspace():
                yield self._number, line

    def give_back(self, number: int, line: bytes) -> None:
        """Give the last line once more, before all that follow."""
        self._returned = (number, line)

    def _next(self) -> memoryview | None:
        """The next line; None when it is too long."""
        searched, is_long = self._start, False
        while not (end := self._buffer.find(b"\n", searched, self._end) + 1):
            length = self._end - self._start
            if length > self._limit:
                is_long, self._start = True, self._end
            if not self._fill():
                end = self._end
                break
            searched = self._start + (0 if is_long else length)
        line = memoryview(self._buffer)[self._start : end]
        self._start = end
        return None if is_long or len(line) - line[-1:].tobytes().count(b"\n") > self._limit else line

    def _fill(self) -> bool:
        """Read more behind the unread bytes, which are moved to where there is room; False at the end of the stream."""
        unread = self._end - self._start
        if self._end == len(self._buffer):
            old = memoryview(self._buffer)[self._start : self._end]
            if unread > len(self._buffer) // 2:
                self._buffer = bytearray(2 * len(self._buffer))
            memoryview(self._buffer)[:unread] = old
            self._start, self._end = 0, unread
        count = self._stream.readinto1(memoryview(self._buffer)[self._end :])
        self._end += count
        return count > 0
