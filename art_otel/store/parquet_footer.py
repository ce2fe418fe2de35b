"""Footer: a Parquet file's metadata taken apart, so that row groups encoded one by one become one file.

Invariant: `join_footers` of the footers of files with one row group each is the footer that pyarrow writes for one file
of these row groups in this order. The bytes of a row group do not say where they stand; only the footer does, in the
fields that are numbers here and cut out of the bytes around them.

Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md) with the
fields of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

_BYTE, _I16, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 3, 4, 6, 7, 8, 9, 10, 12
_BOOLS: Final = (1, 2)

_NUM_ROWS, _ROW_GROUPS = 3, 4
"""Fields of FileMetaData."""

_COLUMNS, _FILE_OFFSET = 1, 5
"""Fields of RowGroup. It has its ordinal only in encrypted files."""

_CHUNK_OFFSET, _META_DATA = 2, 3
"""Fields of ColumnChunk."""

_PAGE_OFFSETS: Final = (9, 10, 11)
"""Fields of ColumnMetaData: where data, index and dictionary pages begin."""


class GroupFooter(msgspec.Struct, frozen=True, kw_only=True):
    """What a footer says of one row group.

    `places` count bytes from the beginning of the file, 0 is nowhere; each stands between two of `pieces`. `rows` is
    how many rows there are.
    """

    rows: int
    pieces: tuple[bytes, ...]
    places: tuple[int, ...]


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """A footer: what stands before the count of rows and behind the row groups, and the row groups."""

    head: bytes
    groups: tuple[GroupFooter, ...]
    tail: bytes


def split_footer(data: bytes) -> Footer:
    """Take a footer apart. `data` is FileMetaData as pyarrow writes it."""
    walk = _Walk(data)
    head = tail = 0
    groups: list[GroupFooter] = []
    for field, kind in walk.fields():
        if field == _NUM_ROWS:
            head = walk.at
            walk.skip(kind)
        elif field == _ROW_GROUPS:
            groups.extend(_group(walk) for _ in range(walk.elements()[0]))
            tail = walk.at
        else:
            walk.skip(kind)
    return Footer(head=data[:head], groups=tuple(groups), tail=data[tail:])


def join_footers(frame: Footer, groups: Sequence[GroupFooter], moved_by: Sequence[int]) -> bytes:
    """The footer of a file with `groups`, of which each stands `moved_by` bytes behind where its footer says."""
    written = [frame.head, _zigzag(sum(group.rows for group in groups)), bytes([0x10 | _LIST])]
    count = len(groups)
    written.append(bytes([count << 4 | _STRUCT]) if count < 15 else bytes([0xF0 | _STRUCT]) + _varint(count))
    for group, moved in zip(groups, moved_by, strict=True):
        *pieces, last = group.pieces
        for piece, place in zip(pieces, group.places, strict=True):
            written += (piece, _zigzag(place + moved if place else 0))
        written.append(last)
    return b"".join((*written, frame.tail))


def _group(walk: "_Walk") -> GroupFooter:
    """Take a RowGroup apart."""
    pieces: list[bytes] = []
    places: list[int] = []
    begin, rows = walk.at, 0

    def cut() -> None:
        nonlocal begin
        pieces.append(walk.data[begin : walk.at])
        places.append(walk.zigzag())
        begin = walk.at

    for field, kind in walk.fields():
        if field == _COLUMNS:
            for _ in range(walk.elements()[0]):
                _cut_chunk(walk, cut)
        elif field == _NUM_ROWS:
            rows = walk.zigzag()
        elif field == _FILE_OFFSET:
            cut()
        else:
            walk.skip(kind)
    pieces.append(walk.data[begin : walk.at])
    return GroupFooter(rows=rows, pieces=tuple(pieces), places=tuple(places))


def _cut_chunk(walk: "_Walk", cut: Callable[[], None]) -> None:
    """Cut the numbers of bytes out of a ColumnChunk."""
    for field, kind in walk.fields():
        if field == _CHUNK_OFFSET:
            cut()
        elif field == _META_DATA:
            for inner, inner_kind in walk.fields():
                if inner in _PAGE_OFFSETS:
                    cut()
                else:
                    walk.skip(inner_kind)
        else:
            walk.skip(kind)


class _Walk:
    """A place in data of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        """Read a number without a sign."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        """Read a number with a sign."""
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; who asks for the next one has read the value."""
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self.zigzag()
            yield field, header & 0x0F

    def elements(self) -> tuple[int, int]:
        """How many elements a list has, and their type."""
        header = self._byte()
        count = header >> 4
        return (self.varint() if count == 15 else count), header & 0x0F

    def skip(self, kind: int) -> None:
        """Read over a field's value. Parquet's footers have no maps."""
        if kind == _BINARY:
            size = self.varint()
            self.at += size
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (_LIST, _SET):
            count, inner = self.elements()
            for _ in range(count):
                self.skip(_BYTE if inner in _BOOLS else inner)
        elif kind == _BYTE:
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif _I16 <= kind <= _I64:
            self.varint()
        elif kind not in _BOOLS:
            raise ValueError(f"a footer of Parquet has no Thrift type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 ^ value >> 63)
