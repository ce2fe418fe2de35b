"""Decoded JSON values: their types and texts, the records in lists of them, and the objects a dump begins with."""

import io
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeGuard

import msgspec
from msgspec import UNSET

from art_otel.sources.json_text.documents import read_documents
from art_otel.sources.json_text.lenient import parse_torn, parse_values
from art_otel.sources.refusals import Refused
from art_otel.spans import Value


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


def text_or_none(value: Value) -> str | None:
    """A text; None for any other value."""
    return value if isinstance(value, str) else None


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
