"""What a dump begins with, for detection."""

import io
from collections.abc import Iterator
from functools import lru_cache

import msgspec
from msgspec import UNSET

from art_otel.sources.json_text.kinds import is_list, is_object
from art_otel.sources.json_text.lenient import pieces
from art_otel.sources.json_text.texts import Texts
from art_otel.spans import Value


@lru_cache(maxsize=1)  # each format asks for those of the same head
def objects_in_head(head: bytes) -> tuple[dict[str, Value], ...]:
    """The objects that the first bytes of a dump hold, also one that they cut off, out of the lists around them."""
    if b"{" not in head:
        return ()
    objects: list[dict[str, Value]] = []
    for text in Texts(io.BytesIO(head), len(head), msgspec.json.decode):
        values = [piece.value for piece in pieces(bytes(text.data or b""))] if text.value is UNSET else [text.value]
        objects += (item for value in values for item in items_of(value) if is_object(item))
    return tuple(objects)


def items_of(value: Value) -> Iterator[Value]:
    """What stands in lists, in lists of such, and in the answers of APIs, `{"data": […]}`; else the value itself."""
    left = [value]
    while left:
        item = left.pop()
        if is_object(item) and is_list(item.get("data")):
            item = item["data"]
        if is_list(item):
            left.extend(reversed(item))
        else:
            yield item
