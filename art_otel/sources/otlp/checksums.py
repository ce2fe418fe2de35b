"""Checksum: a line of OTLP JSON that says its own, as our spool writes them.

Invariant: a line without one is taken as it is, and so is whole JSON that differs from its checksum, as somebody who
writes a spool anew makes it. Of any other line that differs no span is trusted: each is quarantined, named as
far as it can be read.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from art_otel.sources.format import Record
from art_otel.sources.refusals import Refused
from art_otel.spans import Quarantined, Span

_CHECKSUM: Final = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*\Z')
_TAIL: Final = 24
_HINT: Final = b'"crc32":"'


def with_checksum(body: bytes) -> bytes:
    """A JSON object as a line with its CRC-32, which OTLP readers ignore as a field they do not know."""
    return b'%s,"crc32":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def is_altered(line: bytes | memoryview) -> bool:
    """Whether the line differs from what its checksum was made of."""
    tail = bytes(line[-_TAIL:])
    if _HINT not in tail:
        return False
    found = _CHECKSUM.search(tail)
    if found is None:
        return False
    body = memoryview(line)[: len(line) - len(tail) + found.start()]
    return zlib.crc32(b"}", zlib.crc32(body)) != int(found[1], 16)


def distrusted(records: Iterable[Record], place: str) -> Iterator[Quarantined]:
    """The records of an altered line, none of which can be trusted."""
    refused = Refused("bad checksum", detail="the line was altered after it was written")
    found = False
    for record in records:
        found = True
        ids = (record.trace_id, record.span_id)
        yield (
            record
            if isinstance(record, Quarantined)
            else refused.damage(place, "span" if isinstance(record, Span) else "log", ids)
        )
    if not found:
        yield refused.damage(place)
