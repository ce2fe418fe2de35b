"""ReadAhead: the bytes of stored files, fetched in parallel before they are needed.

Files are read one after the other, each in chunks; while one chunk is worked on, the next ones, of the same file or of
those that follow it, are on their way. So many small objects cost their bytes and not a round trip each.

Invariant: at most `CHUNKS` chunks are held, and a file's bytes come in order.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self, cast

from art_otel.errors import SourceError
from art_otel.sources.files.stores import StoredFile, file_system, told

CHUNK_BYTES: Final = 4 << 20
CHUNKS: Final = 8


class ReadAhead:
    """Use it as a context manager. Files have to be read in the order they are given; each may be left at any place."""

    def __init__(self, files: Sequence[StoredFile]) -> None:
        self._files = files
        self._places = {file: at for at, file in enumerate(files)}
        self._next = (0, 0)  # the file and the offset that is fetched next
        self._coming: deque[tuple[int, Future[bytes]]] = deque()
        self._pool = ThreadPoolExecutor(CHUNKS, "art-otel-read-ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def chunks(self, file: StoredFile) -> Iterator[bytes]:
        """The bytes of a file. Raises SourceError."""
        at = self._places[file]
        while self._coming and self._coming[0][0] < at:
            self._coming.popleft()[1].cancel()
        if self._next[0] < at:
            self._next = (at, 0)
        self._fetch()
        while self._coming and self._coming[0][0] == at:
            yield self._coming.popleft()[1].result()
            self._fetch()

    def _fetch(self) -> None:
        """Keep as many chunks coming as may be held."""
        while len(self._coming) < CHUNKS and self._next[0] < len(self._files):
            at, offset = self._next
            file = self._files[at]
            if offset < file.size:
                self._coming.append((at, self._pool.submit(_read, file, offset)))
                self._next = (at, offset + CHUNK_BYTES)
            else:
                self._next = (at + 1, 0)


def _read(file: StoredFile, offset: int) -> bytes:
    size = min(CHUNK_BYTES, file.size - offset)
    with told(file.name), cast(Any, file_system(file.store)).open_input_file(file.path) as opened:
        data: bytes = opened.read_at(size, offset)
    if len(data) < size:
        raise SourceError(f"{file.name}: it became shorter while it was read; convert again when it is complete")
    return data
