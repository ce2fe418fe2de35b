"""The JSON documents of a dump: one a line, or over several lines, one after the other.

Invariant: a document begins with a line, and ends before the next line that begins with a bracket unless it is whole
in one line, so that a broken one costs no other. No more than the limit is held.
"""

import codecs
import io
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from art_otel.sources.files.lines import Lines
from art_otel.sources.json_text.lenient import repair

T = TypeVar("T")
Decode: TypeAlias = Callable[[bytes | memoryview], T]

_STARTS: Final = b"\x1e" + codecs.BOM_UTF8
"""What may stand before a document: the mark of a JSON text sequence, and that of a file."""

_SEPARATORS: Final = _STARTS + b" \t\r\n,[]"
"""What may stand around an item of a list that has an item a line."""

_BRACKETS: Final = (b"{", b"[")
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Document(NamedTuple, Generic[T]):
    """A document that begins in line `line`; `data` is None for one over the limit, `value` UNSET for a broken one.

    `data` is good until the next document is asked for. `replaced` counts the characters that `repair` replaced.
    """

    line: int
    data: bytes | memoryview | None
    value: T | UnsetType = UNSET
    replaced: int = 0


def read_documents(stream: io.BufferedReader | io.BytesIO, limit: int, decode: Decode[T]) -> Iterator[Document[T]]:
    """Read each document of a stream, at most `limit` bytes long, with what `decode` makes of it."""
    lines = Lines(stream, limit)
    for number, line in lines.views():
        if line is None:
            yield Document(number, None)
            continue
        try:
            yield Document(number, line, decode(line))
        except _UNDECODABLE:
            data = bytes(line)
            value = _decode_item(data, decode)
            if value is not UNSET:
                yield Document(number, data, value)
            else:
                yield _long_document(number, data, lines, limit, decode)


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
