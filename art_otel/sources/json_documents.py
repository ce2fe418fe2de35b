"""The JSON documents of a dump: one a line, or over several lines, one after the other; and the objects in them.

Invariant: a document begins with a line, and ends before the next line that begins with a bracket unless it is whole
in one line, so that a broken one costs no other. No more than the limit is held. Nothing here raises for any bytes.
What a strict decoder refuses (NaN, several values in a line, text between values, halves of characters) is read in a
second attempt. An object that is broken or torn is refused with all behind it, up to the beginning of another one that
its writer cannot have written inside it; of one that ends too early the element at the tear goes.
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
"""An escape in a string; the group is half of a surrogate pair without its other half."""

_TORN_MEMBER: Final = re.compile(r'(?:,|(?<=[{\[]))\s*+(?:"[^"\\]*+(?:"\s*+(?::\s*+[\w.+-]*+)?)?|[\w.+-]*+)$')
"""A name without its value, or a word that may go on. jiter would leave it out, so that what is whole looked torn."""

_MAX_MEMBER: Final = 4 << 10
"""Characters at the end of a text in which a torn member is looked for."""

_SENTINELS: Final = (",null", ',"":null', "")
"""Written behind a torn text, so that what is open there ends with it. Which one fits depends on the open bracket."""

_Step: TypeAlias = tuple[Any, Any]
"""A list or an object, and the key of its last value."""

T = TypeVar("T")
Decode: TypeAlias = Callable[[bytes | memoryview], T]
_STARTS: Final = b"\x1e" + codecs.BOM_UTF8
"""What may stand before a document: the mark of a JSON text sequence, and that of a file."""

_SEPARATORS: Final = _STARTS + b" \t\r\n,[]"
"""What may stand around an item of a list that has an item a line."""

_BRACKETS: Final = (b"{", b"[")
_BLOCK_BYTES: Final = 16 << 20
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Document(NamedTuple, Generic[T]):
    """A document that begins in line `line`; `data` is None for one over the limit, `value` UNSET for a broken one.

    `replaced` counts the characters that `repair` replaced.
    """

    line: int
    data: bytes | memoryview | None
    value: T | UnsetType = UNSET
    replaced: int = 0


class Lines:
    """Each line that is not blank with its number; None instead of one longer than `limit` bytes, which is skipped.

    A line is a view of the block that it was read in, and copied only where it goes on in the next: `readline` copies a
    long line three times.
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
        """Give the last line once more, before all that follow."""
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
    return line is None or not (bytes(line[:1]).isspace() and bytes(line).isspace())


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
    """The object that a document is. Raises Refused."""
    if document.data is None:
        raise Refused("over a limit", detail=too_long("").detail)
    if document.value is UNSET:
        raise Refused("not JSON" if bytes(document.data[-1:]) == b"\n" else "torn", detail="is no JSON object")
    if not is_object(document.value):
        raise Refused("bad field", detail="is no object")
    return document.value


@lru_cache(maxsize=1)  # each format asks for those of the same head
def objects_in_head(head: bytes) -> tuple[dict[str, Value], ...]:
    """Decode the objects that the first bytes of a dump hold, out of the lists around them; the last may be cut off."""
    if b"{" not in head:
        return ()
    objects: list[dict[str, Value]] = []
    for document in read_documents(io.BytesIO(head), len(head), msgspec.json.decode):
        values = _values_of(bytes(document.data or b"")) if document.value is UNSET else [document.value]
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


def is_object(value: Value) -> TypeGuard[dict[str, Value]]:
    """Whether a value is an object."""
    return isinstance(value, dict)


def is_list(value: Value) -> TypeGuard[list[Value]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def items_of(value: Value) -> Iterator[Value]:
    """Flatten lists, lists of lists, and the answers of APIs, `{"data": […]}`; any other value is one item."""
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
    """A text as it is, JSON of any other value but None."""
    return value if value is None or isinstance(value, str) else encode(value)


def text_or_none(value: Value) -> str | None:
    """A text; None for any other value."""
    return value if isinstance(value, str) else None


class Piece(NamedTuple):
    """A value that begins `lines` lines after its document, or the Refused of a `text` that is none."""

    lines: int
    value: Value | Refused
    text: str = ""


def parse_values(data: bytes, beginning: re.Pattern[str] | None = None) -> Iterator[Piece]:
    """Parse one value after the other, with Python's json, which takes NaN and Infinity.

    Bytes that are no UTF-8 become U+FFFD: a typed decoder does not look at them in the name of a field that it skips.
    `beginning` matches how a value begins, and nothing inside one: a writer that died may have left one torn before it.
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
            if text[start] == "[":  # its items are read one by one
                position = start + 1
                continue
            following = beginning.search(text, start + 1) if beginning and beginning.match(text, start) else None
            position = following.start() if following else len(text)
            broken = text[start:position]
            yield Piece(lines, _refused(error, error.pos - start, len(broken.rstrip())), broken)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is the other one
            reason = "nested too deep" if isinstance(error, RecursionError) else "not JSON"
            yield Piece(lines, Refused(reason, detail=str(error)), text[start:])
            return
        else:
            yield Piece(lines, value)


def _skip_separators(text: str, position: int) -> int:
    match = _BETWEEN.match(text, position)
    return match.end() if match else position


def _refused(error: json.JSONDecodeError, position: int, end: int) -> Refused:
    """Say what is wrong at a position in a value that ends at `end`."""
    is_torn = error.msg.startswith("Unterminated string") or position >= end - _LONGEST_WORD
    return Refused("torn" if is_torn else "not JSON", detail=f"{error.msg.removesuffix(' at')} at character {position}")


def repair(data: bytes) -> tuple[bytes, int]:
    """Write U+FFFD for each byte that is no UTF-8 and each half of a surrogate pair, and count them.

    OTel JS writes such halves when it cuts a text inside an emoji, C++ and Go such bytes.
    """
    if data.isascii() and b"\\ud" not in data and b"\\uD" not in data:
        return data, 0
    text = data.decode(errors="replace")
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())

    def replace(escape: re.Match[str]) -> str:
        nonlocal replaced
        replaced += escape[1] is not None
        return escape[0] if escape[1] is None else "\ufffd"

    text = _SURROGATES.sub(replace, text)
    return text.encode(), replaced


def split_torn(text: str, holders: frozenset[str]) -> tuple[list[Value], Value]:
    """Parse a torn text to the whole values before the tear, and the element that the tear cut.

    Objects around records have the fields `holders`, which lead to them. Records have none of them.
    """
    values = [parse_torn(text)]
    steps: list[_Step] = [(values, -1)]
    while (step := _next_step(*steps[-1], holders)) is not None:
        steps.append(step)
    while steps[-1][1] in holders and len(holders.intersection(steps[-1][0])) == 1:
        steps.pop()  # nothing else is in the object, so it is the element
    container, key = steps[-1]
    return values, container.pop(key)


def _next_step(container: Any, key: Any, holders: frozenset[str]) -> _Step | None:  # noqa: ANN401 # see _Step
    """Go into what stands last, which is torn, as long as there may be records in it."""
    last: Value = container[key]
    if key != -1 and key not in holders:
        return None
    if is_list(last) and last:
        return last, -1
    return (last, next(reversed(last))) if is_object(last) and not holders.isdisjoint(last) else None


def parse_torn(text: str) -> Value:
    """Parse a torn text as far as it goes. What is open at its end may hold one null more; None for what is no JSON."""
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
