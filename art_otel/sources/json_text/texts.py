"""The JSON texts of a dump: a line each, or several lines, one after the other.

Invariant: a text begins with a line, and one that is broken ends where the next line begins with a bracket, so it costs
no text behind it. No more than the limit is held.
"""

import codecs
import io
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from art_otel.sources.files.lines import Lines
from art_otel.sources.json_text.lenient import repaired, syntax_of

T = TypeVar("T")

SEPARATORS: Final = b" \t\r\n\x1e,[]" + codecs.BOM_UTF8
"""What may stand between the objects of a dump: white space, marks of lists, and what begins a text of a sequence."""

_FILE_STARTS: Final = (b"\x1e", codecs.BOM_UTF8)
_BEFORE: Final = b"".join(_FILE_STARTS)
_AROUND: Final = _BEFORE + b" \t\r\n"
_BRACKETS: Final = (b"{", b"[")
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Text(NamedTuple, Generic[T]):
    """A text that begins in line `line`; `data` is None for one over the limit, `value` UNSET for one that is broken.

    `data` is good until the next text is asked for. `replaced` counts what no text can hold in it: bytes that are no
    UTF-8, and halves of surrogate pairs.
    """

    line: int
    data: bytes | memoryview | None
    value: T | UnsetType = UNSET
    replaced: int = 0


class Texts(Generic[T]):
    """The texts of a stream, each at most `limit` bytes, with what `decode` makes of it."""

    def __init__(
        self, stream: io.BufferedReader | io.BytesIO, limit: int, decode: Callable[[bytes | memoryview], T]
    ) -> None:
        self._lines = Lines(stream, limit)
        self._limit = limit
        self._decode = decode

    def __iter__(self) -> Iterator[Text[T]]:
        for number, line in self._lines.views():
            if line is None:
                yield Text(number, None)
                continue
            try:
                yield Text(number, line, self._decode(line))
                continue
            except _UNDECODABLE:
                pass
            whole = bytes(line)
            value = self._value(whole)
            yield self._document(number, whole) if value is UNSET else Text(number, whole, value)

    def _value(self, data: bytes) -> T | UnsetType:
        """What strictly decoding gives; a list may have an item a line, with a comma behind it."""
        for text in (data.lstrip(_BEFORE), data.strip(SEPARATORS)):
            try:
                return self._decode(text)
            except _UNDECODABLE:
                continue
        return UNSET

    def _document(self, number: int, line: bytes) -> Text[T]:
        """The text that begins with this line, and is none by itself."""
        first = self._chunk(line)
        if first is None:
            return Text(number, None)
        text = self._text(number, first)
        may_go_on = text.value is UNSET and first.strip(SEPARATORS) and syntax_of(first.strip(_AROUND)) == "torn"
        return (self._joined(text) if may_go_on else None) or text

    def _chunk(self, line: bytes) -> bytes | None:
        """The line with all behind it up to the next that begins with a bracket; None when that is over the limit."""
        lines, size = [line], len(line)
        for number, following in self._lines:
            if following is None and len(lines) > 1:
                size += self._limit
                continue
            if following is None or following.lstrip(_BEFORE).startswith(_BRACKETS):
                self._lines.give_back([(number, following)])
                break
            size += len(following)
            if size <= self._limit:
                lines.append(following)
        return b"".join(lines) if size <= self._limit else None

    def _joined(self, text: Text[T]) -> Text[T] | None:
        """The text with the lines behind it that begin with brackets, where they are a part of it; None otherwise."""
        whole = bytearray(text.data or b"")
        tried = len(whole)
        later: list[tuple[int, bytes | None]] = []
        for number, line in self._lines:
            chunk = line and self._chunk(line)
            later.append((number, chunk))
            if chunk is None or len(whole) + len(chunk) > self._limit or chunk.startswith(_FILE_STARTS):
                break
            whole += chunk
            if len(whole) < 2 * tried and self._value(chunk) is not UNSET:
                continue  # an item of a list ends nothing
            tried = len(whole)
            syntax = syntax_of(bytes(whole).strip(_AROUND))
            if syntax == "whole":
                return self._text(text.line, bytes(whole))
            if syntax == "broken":
                break
        self._lines.give_back(later)
        return None

    def _text(self, number: int, data: bytes) -> Text[T]:
        value = self._value(data)
        if value is UNSET:
            data, replaced = repaired(data)
            return Text(number, data, self._value(data) if replaced else UNSET, replaced)
        return Text(number, data, value)
