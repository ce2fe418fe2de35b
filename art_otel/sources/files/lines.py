"""Lines of a stream, numbered from 1, with a bound on what is held in memory."""

import io
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

_BLOCK_BYTES: Final = 1 << 19
_KEPT: Final = 32 << 20
"""Bytes of a long line that may be kept for the next one; more are given back."""


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped."""

    def __init__(self, stream: io.BufferedReader | io.BytesIO, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._number = 0
        self._block: bytes = b""
        self._at = 0  # where the unread rest of the block begins
        self._long = bytearray()
        self._returned: deque[tuple[int, bytes | None]] = deque()

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        for number, line in self.views():
            yield number, None if line is None else bytes(line)

    def views(self) -> Iterator[tuple[int, bytes | memoryview | None]]:
        """The lines, each good until the next one is asked for.

        Long ones stand one after the other in the same memory: to get it from the system anew for each takes a tenth of
        a conversion.
        """
        while self._returned or self._fill():
            if self._returned:
                yield self._returned.popleft()
                continue
            self._number += 1
            line = self._next()
            if line is None or not bytes(line[:1]).isspace() or not bytes(line).isspace():
                yield self._number, line

    def give_back(self, lines: Iterable[tuple[int, bytes | None]]) -> None:
        """Give these lines again, before all that follow."""
        self._returned.extendleft(reversed(list(lines)))

    def _fill(self) -> bool:
        """Hold the next bytes; False at the end of the stream."""
        if self._at == len(self._block):
            self._block, self._at = self._stream.read1(_BLOCK_BYTES), 0
        return bool(self._block)

    def _next(self) -> bytes | memoryview | None:
        """The next line; None when it is too long."""
        length, ended = 0, False
        while not ended and self._fill():
            start, end = self._at, self._block.find(b"\n", self._at) + 1
            ended, self._at = end > 0, end or len(self._block)
            if ended and not length:
                return self._block[start:end] if end - 1 - start <= self._limit else None
            self._keep(memoryview(self._block)[start : self._at], length)
            length += self._at - start
        line = memoryview(self._long)[:length] if length - ended <= self._limit else None
        if len(self._long) > _KEPT:
            self._long = bytearray()
        return line

    def _keep(self, piece: memoryview, start: int) -> None:
        """Hold the next piece of a line, as long as the line may be given."""
        length = start + len(piece)
        if length > self._limit + 1:
            return
        if length > len(self._long):
            longer = bytearray(max(length, len(self._long) * 3 // 2))
            longer[:start] = memoryview(self._long)[:start]
            self._long = longer
        self._long[start:length] = piece
