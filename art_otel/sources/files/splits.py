"""plan_splits: divides the inputs into pieces of work that can be read in any process.

Invariant: every byte of the inputs is in exactly one split, a byte range begins and ends where a line does, and the
splits depend on the inputs and `split_bytes` only.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

import msgspec

from art_otel.errors import SourceError
from art_otel.sources.files.inputs import ByteRange, Input
from art_otel.sources.files.stores import read_range
from art_otel.sources.files.streams import HEAD_BYTES, compression_of, open_input
from art_otel.sources.format import Format, Limits, detect_format

_BLOCK: Final = 1 << 20
_LOOKAHEAD: Final = 1 << 12
"""What a pattern of `Format.cuts` matches need not be seen beyond so many bytes."""


def plan_splits(
    inputs: Sequence[Input], split_bytes: int, dump_format: Format | None = None
) -> list[tuple[Input, ...]]:
    """Divide the inputs, in their order, into splits of about `split_bytes`.

    Small inputs are put together. A larger one is cut where its format, given or detected, says that it can be, and is
    a split of its own where it cannot. Inputs of unknown size count as small.
    """
    splits: list[tuple[Input, ...]] = []
    together: list[Input] = []
    size = 0
    for source in inputs:
        for part in _parts(source, split_bytes, dump_format):
            if together and size + (part.size or 0) > split_bytes:
                splits.append(tuple(together))
                together, size = [], 0
            together.append(part)
            size += part.size or 0
    return [*splits, tuple(together)] if together else splits


def _parts(source: Input, split_bytes: int, dump_format: Format | None) -> Iterable[Input]:
    """Cut an input into parts of about one size; the input itself where it cannot be cut."""
    size = source.size or 0
    if source.byte_range is not None:
        return (source,)
    dump_format = _cuttable_format(source, dump_format) if size > split_bytes else None
    if dump_format is None or dump_format.cuts is None:
        return (source,)
    count = -(-size // split_bytes)
    ends = [0]
    for number in range(1, count):
        ends.append(_next_cut(source, max(size * number // count, ends[-1]), dump_format.cuts))
    ends = sorted({*ends, size})
    if len(ends) == 2:  # it was cut nowhere
        return (source,)
    return [
        msgspec.structs.replace(
            source, size=end - start, byte_range=ByteRange(start=start, end=end, format=dump_format.name)
        )
        for start, end in pairwise(ends)
    ]


def line_format(source: Input) -> Format | None:
    """Find the format of an input of lines, compressed or not; None where it is no such format."""
    dump_format: Format | None = None
    with suppress(SourceError), open_input(source, Limits(), lambda _: None) as opened:
        dump_format = detect_format(opened.stream.peek(HEAD_BYTES))
    return None if dump_format is None or dump_format.cuts is None else dump_format


def _cuttable_format(source: Input, dump_format: Format | None = None) -> Format | None:
    """Find the format of an input that can be cut; None for one that cannot."""
    head = next(_blocks(source, 0), b"")
    if compression_of(head) is not None:
        return None  # also where its bytes let a text shine through, as fast levels of zstd do
    dump_format = dump_format or detect_format(head)
    return dump_format if dump_format is not None and dump_format.detects(head) else None


def _next_cut(source: Input, position: int, cuts: re.Pattern[bytes]) -> int:
    """Find where the input can be cut next, which may be further away than memory holds; its end where it cannot."""
    data = b""
    for block in _blocks(source, position):
        data += block
        if cut := _first_cut(data, cuts):
            return position + cut
        position += max(len(data) - _LOOKAHEAD, 0)
        data = data[-_LOOKAHEAD:]
    return position + len(data)


def _first_cut(data: bytes, cuts: re.Pattern[bytes]) -> int | None:
    """Find the first line behind which the bytes can be cut. A pattern is slow, so only the ends of lines are tried."""
    end = data.find(b"\n")
    while end >= 0:
        if cut := cuts.match(data, end):
            return cut.end()
        end = data.find(b"\n", end + 1)
    return None


def _blocks(source: Input, start: int) -> Iterator[bytes]:
    """Read the bytes of an input from `start` on; none of one that cannot be opened, as reading it later says why."""
    size = source.byte_range.end if source.byte_range else source.size or 0
    with suppress(OSError, SourceError):
        if source.stored is not None:
            for at in range(start, size, _BLOCK):
                yield read_range(source.stored, at, min(at + _BLOCK, size))
        elif source.path is not None:
            with source.path.open("rb") as file:
                file.seek(start)
                while block := file.read(max(_BLOCK, HEAD_BYTES)):
                    yield block


def lines_before(source: Input, position: int) -> int:
    """Count the lines of an input before a position in bytes."""
    count = 0
    for block in _content(source) if source.byte_range and source.byte_range.is_decompressed else _blocks(source, 0):
        if len(block) >= position:
            return count + block.count(b"\n", 0, position)
        count += block.count(b"\n")
        position -= len(block)
    return count


def _content(source: Input) -> Iterator[bytes]:
    """Read the bytes that a compressed input holds."""
    whole = msgspec.structs.replace(source, byte_range=None)
    with open_input(whole, Limits(), lambda _: None) as opened:
        while block := opened.stream.read(_BLOCK):
            yield block
