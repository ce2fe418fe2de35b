"""Checksum: a line of OTLP JSON that says its own, as our spool writes them.

Invariant: a line is read if it is whole JSON, whether or not it has a checksum and matches it: somebody may write a
spool anew. A line that does not match is only counted.
"""

import re
import zlib
from typing import Final

_CHECKSUM: Final = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*\Z')
_TAIL: Final = 24
_HINT: Final = b'"crc32":"'


def with_checksum(body: bytes) -> bytes:
    """Write a JSON object as a line with its CRC-32, which OTLP readers ignore as a field they do not know."""
    return b'%b,"crc32":"%08x"}\n' % (memoryview(body)[:-1], zlib.crc32(body))


def is_altered(line: bytes | memoryview) -> bool:
    """Whether the line differs from what its checksum was made of."""
    tail = bytes(line[-_TAIL:])
    if _HINT not in tail:
        return False
    match = _CHECKSUM.search(tail)
    if match is None:
        return False
    body = memoryview(line)[: len(line) - len(tail) + match.start()]
    return zlib.crc32(b"}", zlib.crc32(body)) != int(match[1], 16)
