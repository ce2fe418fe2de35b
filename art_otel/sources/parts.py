"""Part: a piece of a file that can be read alone, so that several processes can share the reading.

Invariant: every byte of the inputs is in exactly one share, and a part begins and ends where a line does.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from art_otel.sources.decompress import GZIP_MAGIC, PARQUET_MAGIC, ZSTD_MAGIC, is_framed_zstd
from art_otel.sources.format import Format
from art_otel.sources.formats import detect_format
from art_otel.sources.inputs import Input, Part
from art_otel.sources.streams import HEAD_BYTES

MIN_PART_BYTES: Final = 8 << 20
_BLOCK: Final = 1 << 20
_LOOK: Final = 1 << 16


def share_inputs(inputs: Sequence[Input], count: int, known: Format | None = None) -> list[list[Input]]:
    """Divide the inputs into at most `count` shares of about equal size, in their order.

    A file is cut only where its format, `known` or found out, holds whatever is needed in each line. Inputs of unknown
    size count as small.
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
    cuttable = found is not None and found.lines is not None and found.detects(head) and found.lines(head)
    return found if cuttable else None


def _is_packed(head: bytes) -> bool:
    return head.startswith((GZIP_MAGIC, ZSTD_MAGIC, PARQUET_MAGIC)) or is_framed_zstd(head)


def _parts(source: Input, cuts: Sequence[int], found: Format) -> Iterator[Input]:
    """The file cut behind the line that stands at each of `cuts`."""
    if source.path is None or source.size is None:
        yield source
        return
    with source.path.open("rb") as file:
        places = [0]
        for cut in cuts:
            places.append(_line_end(file, max(cut, places[-1])))
    for start, end in zip(places, [*places[1:], source.size], strict=True):
        yield msgspec.structs.replace(source, size=end - start, part=Part(start=start, end=end, format=found.name))


def _line_end(file: BinaryIO, place: int) -> int:
    """Where the line ends that a place is in, which may be longer than memory."""
    file.seek(place)
    while block := file.read(_LOOK):
        found = block.find(b"\n") + 1
        place += found or len(block)
        if found:
            break
    return place


def lines_before(path: Path, place: int) -> int:
    """How many lines a file has before a place in bytes."""
    count = 0
    with path.open("rb") as file:
        while block := file.read(min(_BLOCK, place - file.tell())):
            count += block.count(b"\n")
    return count
