"""Prefetcher: the bytes of stored files, fetched in parallel before they are needed.

Files are read one after the other, each in chunks; while one chunk is worked on, the next ones, of the same file or of
those that follow it, are on their way. So many small objects cost their bytes and not a round trip each.

Invariant: at most `CHUNKS` chunks are held, and a file's bytes come in order.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

from art_otel.sources.files.inputs import Input
from art_otel.sources.files.stores import StoredFile, read_range

CHUNK_BYTES: Final = 4 << 20
CHUNKS: Final = 8


class Prefetcher:
    """Use it as a context manager. Inputs are read in the order they are given; each may be left at any place."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._left: set[Input] = set()
        self._waiting = self._ranges(inputs)
        self._coming: deque[tuple[Input, Future[bytes]]] = deque()
        self._pool = ThreadPoolExecutor(CHUNKS, "art-otel-prefetch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def chunks(self, source: Input) -> Generator[bytes]:
        """Read the bytes of an input that is stored. Raises SourceError."""
        try:
            self._fetch()
            while self._coming and self._coming[0][0] == source:
                yield self._coming.popleft()[1].result()
                self._fetch()
        finally:
            self._left.add(source)

    def _fetch(self) -> None:
        """Keep as many chunks coming as may be held, none of inputs that were left."""
        while self._coming and self._coming[0][0] in self._left:
            self._coming.popleft()[1].cancel()
        while len(self._coming) < CHUNKS and (chunk := next(self._waiting, None)):
            source, stored, start, end = chunk
            self._coming.append((source, self._pool.submit(read_range, stored, start, end)))

    def _ranges(self, inputs: Sequence[Input]) -> Iterator[tuple[Input, StoredFile, int, int]]:
        for source in inputs:
            start, end = (
                (source.byte_range.start, source.byte_range.end) if source.byte_range else (0, source.size or 0)
            )
            while source.stored is not None and start < end and source not in self._left:
                yield source, source.stored, start, min(start + CHUNK_BYTES, end)
                start += CHUNK_BYTES
