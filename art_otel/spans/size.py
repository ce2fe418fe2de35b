"""Size: how many bytes a value takes.

Invariant: a value counts the same whatever encoding it came in, and never more than the bytes it stood in.
"""

from typing import Final, cast

from art_otel.spans.span import Value

_CHUNK: Final = 1 << 20


def size_of(value: Value) -> int:
    """The bytes of a value: of text in UTF-8; of a list or dict those of all in it, and one for each value in it."""
    if isinstance(value, str):
        if value.isascii():
            return len(value)
        pieces = (value[start : start + _CHUNK] for start in range(0, len(value), _CHUNK))
        return sum(len(piece.encode(errors="surrogatepass")) for piece in pieces)  # a whole copy may be large
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        fields = cast(dict[str, Value], value)
        return sum(size_of(name) + size_of(item) for name, item in fields.items()) + len(fields)
    if isinstance(value, list):
        items = cast(list[Value], value)
        return sum(map(size_of, items)) + len(items)
    return 0
