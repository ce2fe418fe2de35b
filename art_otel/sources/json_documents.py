"""The JSON documents of a dump: one a line, or over several lines, one after the other; and the objects in them.

Invariant: a document begins with a line, and ends before the next line that begins with a bracket unless it is whole
in one line, so that a broken one costs no other. No more than the limit is held.
"""

import codecs
import io
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from art_otel.sources.json_values import is_object, items_of, parse_torn, parse_values, repair
from art_otel.sources.refusals import Refused, too_long
from art_otel.spans import Value

T = TypeVar("T")
Decode: TypeAlias = Callable[[bytes], T]

_STARTS: Final = b"\x1e" + codecs.BOM_UTF8
"""What may stand before a document: the mark of a JSON text sequence, and that of a file."""

_SEPARATORS: Final = _STARTS + b" \t\r\n,[]"
"""What may stand around an item of a list that has an item a line."""

_BRACKETS: Final = (b"{", b"[")
_SKIP_BYTES: Final = 1 << 20
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped."""

    def __init__(self, stream: io.BufferedReader | io.BytesIO, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._number = 0
        self._returned: tuple[int, bytes] | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        read, longest = self._stream.readline, self._limit + 1
        while True:
            if self._returned:
                returned, self._returned = self._returned, None
                yield returned
                continue
            line = read(longest + 1)
            if not line:
                return
            self._number += 1
            if len(line) >= longest and not (len(line) == longest and line.endswith(b"\n")):
                self._skip_rest(line)
                yield self._number, None
            elif not line[:1].isspace() or not line.isspace():
                yield self._number, line

    def give_back(self, number: int, line: bytes) -> None:
        """Give the last line once more, before all that follow."""
        self._returned = (number, line)

    def _skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._stream.readline(_SKIP_BYTES)


class Document(NamedTuple, Generic[T]):
    """A document that begins in line `line`; `data` is None for one over the limit, `value` UNSET for a broken one.

    `replaced` counts the characters that `repair` replaced.
    """

    line: int
    data: bytes | None
    value: T | UnsetType = UNSET
    replaced: int = 0


def read_documents(stream: io.BufferedReader | io.BytesIO, limit: int, decode: Decode[T]) -> Iterator[Document[T]]:
    """Read each document of a stream, at most `limit` bytes long, with what `decode` makes of it."""
    lines = Lines(stream, limit)
    for number, line in lines:
        if line is None:
            yield Document(number, None)
            continue
        try:
            yield Document(number, line, decode(line))
        except _UNDECODABLE:
            value = _decode_item(line, decode)
            if value is not UNSET:
                yield Document(number, line, value)
            else:
                yield _long_document(number, line, lines, limit, decode)


def read_documents_of(data: bytes, decode: Decode[T]) -> Iterator[Document[T]]:
    """Read each document of bytes that are in memory: mostly one."""
    try:
        yield Document(1, data, decode(data))
    except _UNDECODABLE:
        yield from read_documents(io.BytesIO(data), len(data), decode)


def _decode_item(data: bytes, decode: Decode[T]) -> T | UnsetType:
    for text in (data.lstrip(_STARTS), data.strip(_SEPARATORS)):
        try:
            return decode(text)
        except _UNDECODABLE:
            continue
    return UNSET


def _long_document(number: int, first: bytes, lines: Lines, limit: int, decode: Decode[T]) -> Document[T]:
    """Read the lines that go on from a first one, and decode them together."""
    data = _with_following_lines(first, lines, limit)
    if data is None:
        return Document(number, None)
    value = _decode_item(data, decode)
    if value is not UNSET:
        return Document(number, data, value)
    data, replaced = repair(data)
    return Document(number, data, _decode_item(data, decode) if replaced else UNSET, replaced)


def _with_following_lines(first: bytes, lines: Lines, limit: int) -> bytes | None:
    """Join a line with those up to the next that begins with a bracket; None when that is over the limit."""
    parts, size = [first], len(first)
    for number, line in lines:
        if line is not None and line.lstrip(_STARTS).startswith(_BRACKETS):
            lines.give_back(number, line)
            break
        size += limit if line is None else len(line)
        if line is not None and size <= limit:
            parts.append(line)
    return b"".join(parts) if size <= limit else None


@lru_cache(maxsize=1)  # each format asks for those of the same head
def objects_in_head(head: bytes) -> tuple[dict[str, Value], ...]:
    """Decode the objects that the first bytes of a dump hold, out of the lists around them; the last may be cut off."""
    if b"{" not in head:
        return ()
    objects: list[dict[str, Value]] = []
    for document in read_documents(io.BytesIO(head), len(head), msgspec.json.decode):
        values = _values_of(document.data or b"") if document.value is UNSET else [document.value]
        objects += (item for value in values for item in items_of(value) if is_object(item))
    return tuple(objects)


def head_detector(matches: Callable[[dict[str, Value]], bool]) -> Callable[[bytes], bool]:
    """Make a function that says whether any object in the first bytes of a dump matches."""
    return lambda head: any(map(matches, objects_in_head(head)))


def _values_of(data: bytes) -> Iterator[Value]:
    for piece in parse_values(data):
        if not isinstance(piece.value, Refused):
            yield piece.value
        elif piece.value.reason == "torn":
            yield parse_torn(piece.text)


def read_objects(stream: io.BufferedReader, limit: int) -> Iterator[tuple[int, dict[str, Value] | Refused]]:
    """Read every object, at most `limit` bytes long."""
    for document in read_documents(stream, limit, msgspec.json.decode):
        if document.data is None:
            yield document.line, Refused("over a limit", detail=too_long("").detail)
        elif document.value is UNSET or not is_object(document.value):
            yield document.line, Refused("not JSON", detail="is no JSON object")
        else:
            yield document.line, document.value
