"""A read of up to many bytes that takes only the memory of those there are: a length in a dump may be a lie."""

import io
from collections.abc import Iterator
from typing import Final

_AT_ONCE: Final = 64 << 20


def read_up_to(stream: io.BufferedIOBase, size: int) -> bytes:
    """The next `size` bytes, fewer only at the end of the stream."""
    return stream.read(size) if size <= _AT_ONCE else b"".join(_pieces(stream, size))


def _pieces(stream: io.BufferedIOBase, size: int) -> Iterator[bytes]:
    while size and (piece := stream.read(min(size, _AT_ONCE))):
        size -= len(piece)
        yield piece
