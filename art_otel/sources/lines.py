"""Lines of a stream, numbered from 1, with a bound on what is held in memory."""

import io
from collections.abc import Iterator

SKIP_BYTES = 1 << 20


def read_lines(stream: io.BufferedReader, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) <= limit or line.endswith(b"\n"):
            if not line.isspace():
                yield number, line
            continue
        del line  # the next lines need the memory
        while (rest := stream.readline(SKIP_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield number, None
