"""Part: a piece of a file that can be read alone, so that several processes can share the reading.

Invariant: every byte of the inputs is in exactly one share, and a part begins and ends where a line does.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from art_otel.sources.files.decompress import GZIP_MAGIC, PARQUET_MAGICS, is_framed_zstd, is_zstd
from art_otel.sources.files.inputs import Input, Part
from art_otel.sources.files.streams import HEAD_BYTES
from art_otel.sources.format import Format
from art_otel.sources.formats import detect_format

MIN_PART_BYTES: Final = 8 << 20
_BLOCK: Final = 1 << 20
_LOOK: Final = 1 << 16
_BEHIND: Final = 1 << 12
"""Bytes behind a line that tell whether a record begins there."""


def share_inputs(inputs: Sequence[Input], count: int, known: Format | None = None) -> list[list[Input]]:
    """Divide the inputs into at most `count` shares of about equal size, in their order.

    A file is cut only where its format, `known` or found out, says that it can be. Inputs of unknown size count as
    small.
    """
    total = sum(source.size or 0 for source in inputs)
    shares: list[list[Input]] = [[] for _ in range(count)]
    before = 0
    for source in inputs:
        size = source.size or 0
        first, last = (min(count - 1, at * count // max(total, 1)) for at in (before, before + max(size - 1, 0)))
        found = None if first == last else _cuttable(source, known)
        if found is None:
            shares[first].append(source)
        else:
            cuts = [total * share // count - before for share in range(first + 1, last + 1)]
            for share, part in enumerate(_parts(source, cuts, found), first):
                shares[share].append(part)
        before += size
    return [share for share in shares if share]


def _cuttable(source: Input, known: Format | None) -> Format | None:
    """The format of a file that can be cut; None for a file that cannot."""
    if source.path is None or source.size is None or source.size < 2 * MIN_PART_BYTES:
        return None
    try:
        with source.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None  # reading it later says why
    found = known or detect_format(head)
    if _is_packed(head):
        return None  # also where its bytes let a text shine through, as fast levels of zstd do
    return found if found is not None and found.cuts is not None and found.detects(head) else None


def _is_packed(head: bytes) -> bool:
    return head.startswith((GZIP_MAGIC, *PARQUET_MAGICS)) or is_zstd(head) or is_framed_zstd(head)


def _parts(source: Input, cuts: Sequence[int], found: Format) -> Iterator[Input]:
    """The file cut behind each of `cuts`, where its format can be cut; as it is where that is nowhere."""
    places = [0]
    if source.path is not None and source.size is not None and found.cuts is not None:
        with source.path.open("rb") as file:
            for cut in cuts:
                places.append(_next_cut(file, max(cut, places[-1]), found.cuts))
    if places[1:2] in ([], [source.size]):
        yield source
        return
    for start, end in zip(places, [*places[1:], source.size or 0], strict=True):
        yield msgspec.structs.replace(source, size=end - start, part=Part(start=start, end=end, format=found.name))


def _next_cut(file: BinaryIO, place: int, cuts: re.Pattern[bytes]) -> int:
    """Where the file can be cut next, which may be further away than memory holds; its end where it cannot."""
    file.seek(place)
    data = b""
    while block := file.read(_LOOK):
        data += block
        if b"\n" in data and (found := cuts.search(data)):  # lines may be long, and patterns are slow
            return place + found.end()
        place += max(len(data) - _BEHIND, 0)
        data = data[-_BEHIND:]
    return place + len(data)


def lines_before(path: Path, place: int) -> int:
    """How many lines a file has before a place in bytes."""
    count = 0
    with path.open("rb") as file:
        while block := file.read(min(_BLOCK, place - file.tell())):
            count += block.count(b"\n")
    return count
