"""Lines of a stream, numbered from 1, with a bound on what is held in memory."""

import io
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

_SKIP_BYTES: Final = 1 << 20


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped."""

    def __init__(self, stream: io.BufferedIOBase, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._number = 0
        self._returned: deque[tuple[int, bytes | None]] = deque()

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        return self

    def __next__(self) -> tuple[int, bytes | None]:
        if self._returned:
            return self._returned.popleft()
        while line := self._stream.readline(self._limit + 1):
            self._number += 1
            if len(line) > self._limit and not line.endswith(b"\n"):
                self._skip()
                return self._number, None
            if not line.isspace():
                return self._number, line
        raise StopIteration

    def give_back(self, lines: Iterable[tuple[int, bytes | None]]) -> None:
        """Give these lines again, before all that follow."""
        self._returned.extendleft(reversed(list(lines)))

    def _skip(self) -> None:
        """Go to the end of the line."""
        while (rest := self._stream.readline(_SKIP_BYTES)) and not rest.endswith(b"\n"):
            pass
