"""JSON documents: read the JSON documents of a dump, one per line or over several lines, and the objects in them.

    {"a": 1}          a document in one line
    {                 a document over several lines: it ends before the next line that begins with a bracket
      "b": 2
    }
    {"c": 3, "d       a torn document: {"c": 3} can be recovered (`parse_torn`)

Invariant: a broken document costs no other document. Memory has at most `limit` bytes of a document. Nothing here
raises for any bytes. Documents that a strict decoder refuses (NaN, several values in a line, text between values,
halves of characters) are read in a second attempt. A broken object is refused with everything after it, up to the
beginning of another one that cannot be inside of it; of a torn one only the element at the tear is lost.
"""

import codecs
import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

import jiter
import msgspec
from msgspec import UNSET, UnsetType

from art_otel.sources.format import Refused, too_long
from art_otel.spans import Value

_DECODER: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile("[ \t\r\n\x1e\ufeff,\\]]*")
_BRACKET: Final = re.compile(r"[{\[]")
_LONGEST_WORD: Final = len("-Infinity")
_SURROGATES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a JSON string; the group matches half of a surrogate pair without its other half."""

_TORN_MEMBER: Final = re.compile(r'(?:,|(?<=[{\[]))\s*+(?:"[^"\\]*+(?:"\s*+(?::\s*+[\w.+-]*+)?)?|[\w.+-]*+)$')
"""A torn name without its value, or a torn word. jiter would silently drop it, so that the whole value before it would
count as torn."""

_MAX_MEMBER: Final = 4 << 10
"""How many characters at the end of a text are searched for a torn member."""

_SENTINELS: Final = (",null", ',"":null', "")
"""Appended to a torn text, so that the last open list or object ends with a null. Its bracket decides which fits."""

_Step: TypeAlias = tuple[Any, Any]
"""A list or an object, and the key of its last value."""

T = TypeVar("T")
Decode: TypeAlias = Callable[[bytes | memoryview], T]
_STARTS: Final = b"\x1e" + codecs.BOM_UTF8
"""Bytes that may be before a document: the separator of a JSON text sequence, and a byte order mark."""

_SEPARATORS: Final = _STARTS + b" \t\r\n,[]"
"""Bytes that may be around an item of a list with one item per line."""

_BRACKETS: Final = (b"{", b"[")
_BLOCK_BYTES: Final = 16 << 20
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Document(NamedTuple, Generic[T]):
    """A document that begins in line `line`; `data` is None if it is over the limit, `value` UNSET if it is broken.

    `replaced` counts the characters that `repair` replaced.
    """

    line: int
    data: bytes | memoryview | None
    value: T | UnsetType = UNSET
    replaced: int = 0


class Lines:
    """Each line that is not blank, with its number; None in place of a line of more than `limit` bytes.

    A line is a view of the block that was read, and copied only if it continues in the next block. (`readline` copies a
    long line three times.)
    """

    def __init__(self, stream: io.BufferedReader | io.BytesIO, limit: int, block_bytes: int = _BLOCK_BYTES) -> None:
        self._lines = filter(_is_not_blank, enumerate(_lines_of(stream, limit, block_bytes), 1))
        self._returned: tuple[int, memoryview] | None = None

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> tuple[int, memoryview | None]:
        returned, self._returned = self._returned, None
        return returned or next(self._lines)

    def give_back(self, number: int, line: memoryview) -> None:
        """Put the last line back, so that it is the next one again."""
        self._returned = (number, line)


def _lines_of(stream: io.BufferedReader | io.BytesIO, limit: int, block_bytes: int) -> Iterator[memoryview | None]:
    pieces, size = list[memoryview](), 0
    while block := stream.read(block_bytes):
        view, start = memoryview(block), 0
        while start < len(block):
            end = block.find(b"\n", start) + 1
            piece = view[start : end or len(block)]
            start += len(piece)
            size += len(piece)
            pieces.append(piece)
            if size - bool(end) > limit:
                pieces.clear()
            if end:
                yield _joined(pieces)
                pieces, size = [], 0
    if size:
        yield _joined(pieces)


def _joined(pieces: list[memoryview]) -> memoryview | None:
    if len(pieces) == 1:
        return pieces[0]
    return memoryview(b"".join(pieces)) if pieces else None


def _is_not_blank(numbered: tuple[int, memoryview | None]) -> bool:
    line = numbered[1]
    # The first byte decides nearly always, so that long lines are not copied.
    return line is None or not (bytes(line[:1]).isspace() and bytes(line).isspace())


def read_documents(stream: io.BufferedReader | io.BytesIO, limit: int, decode: Decode[T]) -> Iterator[Document[T]]:
    """Read each document of a stream, of at most `limit` bytes, and decode it with `decode`."""
    lines = Lines(stream, limit)
    for number, line in lines:
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
    """Read each document of bytes in memory, mostly a single one."""
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
    """Read the lines that continue a first one, and decode them together."""
    data = _with_following_lines(first, lines, limit)
    if data is None:
        return Document(number, None)
    value = _decode_item(data, decode)
    if value is not UNSET:
        return Document(number, data, value)
    data, replaced = repair(data)
    return Document(number, data, _decode_item(data, decode) if replaced else UNSET, replaced)


def _with_following_lines(first: bytes, lines: Lines, limit: int) -> bytes | None:
    """Join a line with the lines up to the next one that begins with a bracket; None if this is over the limit."""
    parts, size = list[bytes | memoryview]([first]), len(first)
    for number, line in lines:
        if line is not None and bytes(line).lstrip(_STARTS).startswith(_BRACKETS):
            lines.give_back(number, line)
            break
        size += limit if line is None else len(line)
        if line is not None and size <= limit:
            parts.append(line)
    return b"".join(parts) if size <= limit else None


def object_of(document: Document[Value]) -> dict[str, Value]:
    """The object of a document. Raises Refused if it is broken, over the limit, or no object."""
    if document.data is None:
        raise Refused("over a limit", detail=too_long("").detail)
    if document.value is UNSET:
        raise Refused("not JSON" if bytes(document.data[-1:]) == b"\n" else "torn", detail="is no JSON object")
    if not is_object(document.value):
        raise Refused("bad field", detail="is no object")
    return document.value


@lru_cache(maxsize=1)  # during detection all formats ask for the same head
def objects_in_head(head: bytes) -> tuple[dict[str, Value], ...]:
    """Decode the objects in the first bytes of a dump, also out of lists around them; the last one may be cut."""
    if b"{" not in head:
        return ()
    objects: list[dict[str, Value]] = []
    for document in read_documents(io.BytesIO(head), len(head), msgspec.json.decode):
        values = _values_of(bytes(document.data or b"")) if document.value is UNSET else [document.value]
        objects += (item for value in values for item in items_of(value) if is_object(item))
    return tuple(objects)


def head_detector(matches: Callable[[dict[str, Value]], bool]) -> Callable[[bytes], bool]:
    """Make a function for `SourceFormat.detects`: whether any object in the first bytes of a dump matches."""
    return lambda head: any(map(matches, objects_in_head(head)))


def _values_of(data: bytes) -> Iterator[Value]:
    for piece in parse_values(data):
        if not isinstance(piece.value, Refused):
            yield piece.value
        elif piece.value.reason == "torn":
            yield parse_torn(piece.text)


def is_object(value: Value) -> TypeGuard[dict[str, Value]]:
    """Whether a value is an object."""
    return isinstance(value, dict)


def is_list(value: Value) -> TypeGuard[list[Value]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def items_of(value: Value) -> Iterator[Value]:
    """Flatten lists, nested lists, and answers of APIs (`{"data": […]}`); any other value is one item."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if is_object(item) and is_list(item.get("data")):
            item = item["data"]
        if is_list(item):
            waiting.extend(reversed(item))
        else:
            yield item


def encode(value: Value) -> str:
    """JSON text of a JSON value."""
    try:
        return msgspec.json.encode(value).decode()
    except OverflowError:  # a whole number of more than 64 bits
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def text_or_json(value: Value) -> str | None:
    """A text or None unchanged; any other value as JSON text."""
    return value if value is None or isinstance(value, str) else encode(value)


def text_or_none(value: Value) -> str | None:
    """A text; None for any other value."""
    return value if isinstance(value, str) else None


class Piece(NamedTuple):
    """A value that begins `lines` lines after its document's begin; or the Refused of a `text` that is no value."""

    lines: int
    value: Value | Refused
    text: str = ""


def parse_values(data: bytes, beginning: re.Pattern[str] | None = None) -> Iterator[Piece]:
    """Parse one value after the other, with Python's json, which accepts NaN and Infinity.

    Bytes that are no UTF-8 become U+FFFD. `beginning` matches the begin of a value, and nothing inside of one: reading
    continues there after a torn value, which a killed writer left.
    """
    text = data.decode(errors="replace")
    position = counted = lines = 0
    while (position := _skip_separators(text, position)) < len(text):
        lines, counted = lines + text.count("\n", counted, position), position
        bracket = _BRACKET.search(text, position)
        start = bracket.start() if bracket else len(text)
        if start > position:
            noise = text[position:start]
            yield Piece(lines, Refused("not JSON", detail="text between the records"), noise)
            position = start
            continue
        try:
            value, position = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if text[start] == "[":  # skip the bracket of a broken list, and read its items one by one
                position = start + 1
                continue
            following = beginning.search(text, start + 1) if beginning and beginning.match(text, start) else None
            position = following.start() if following else len(text)
            broken = text[start:position]
            yield Piece(lines, _refused(error, error.pos - start, len(broken.rstrip())), broken)
        except (ValueError, RecursionError) as error:  # ValueError: a number with thousands of digits
            reason = "nested too deep" if isinstance(error, RecursionError) else "not JSON"
            yield Piece(lines, Refused(reason, detail=str(error)), text[start:])
            return
        else:
            yield Piece(lines, value)


def _skip_separators(text: str, position: int) -> int:
    match = _BETWEEN.match(text, position)
    return match.end() if match else position


def _refused(error: json.JSONDecodeError, position: int, end: int) -> Refused:
    """The problem at a position in a value that ends at `end`: torn if it is at the end, otherwise no JSON."""
    is_torn = error.msg.startswith("Unterminated string") or position >= end - _LONGEST_WORD
    return Refused("torn" if is_torn else "not JSON", detail=f"{error.msg.removesuffix(' at')} at character {position}")


def repair(data: bytes) -> tuple[bytes, int]:
    """Replace bytes that are no UTF-8, and halves of surrogate pairs, by U+FFFD; also return their number.

    OTel JS writes such halves when it cuts a text inside of an emoji; C++ and Go write such bytes.
    """
    if data.isascii() and b"\\ud" not in data and b"\\uD" not in data:
        return data, 0  # fast path: without such escapes ASCII needs no repair
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())

    def replace(escape: re.Match[str]) -> str:
        nonlocal replaced
        replaced += escape[1] is not None
        return escape[0] if escape[1] is None else "\ufffd"

    text = _SURROGATES.sub(replace, text)
    return text.encode(), replaced


def split_torn(text: str, holders: frozenset[str]) -> tuple[list[Value], Value]:
    """Parse a torn text into the whole values before the tear, and the element that was torn.

        {"spans": [{"id": 1}, {"id": 2, "na        holders {"spans"}: [{"spans": [{"id": 1}]}], {"id": 2}

    `holders` are the fields that lead to records. Records themselves have none of these fields.
    """
    values = [parse_torn(text)]
    steps: list[_Step] = [(values, -1)]
    while (step := _next_step(*steps[-1], holders)) is not None:
        steps.append(step)
    while steps[-1][1] in holders and len(holders.intersection(steps[-1][0])) == 1:
        steps.pop()  # an object with only this holder is itself the torn element
    container, key = steps[-1]
    return values, container.pop(key)


def _next_step(container: Any, key: Any, holders: frozenset[str]) -> _Step | None:  # noqa: ANN401 # see _Step
    """Go into the last value, which is torn, as long as it may have records inside."""
    last: Value = container[key]
    if key != -1 and key not in holders:
        return None
    if is_list(last) and last:
        return last, -1
    return (last, next(reversed(last))) if is_object(last) and not holders.isdisjoint(last) else None


def parse_torn(text: str) -> Value:
    """Parse a torn text up to its end. The last open value may have an extra null; None if it is no JSON."""
    text = text.rstrip()
    member = _TORN_MEMBER.search(text, max(0, len(text) - _MAX_MEMBER))
    text = text[: member.start()] if member else text
    for sentinel in _SENTINELS:
        with contextlib.suppress(ValueError):
            return jiter.from_json((text + sentinel).encode(), partial_mode="trailing-strings")
    return None


def object_or_empty(value: Value) -> dict[str, Value]:
    """An object; an empty one for any other value."""
    return value if is_object(value) else {}
