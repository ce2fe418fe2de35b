"""The protobuf wire format: tags, lengths and values, read without knowing the messages.

Invariant: reading never leaves the range it is given and never recurses; what cannot be read ends it.

Source of the format: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_MAX_VARINT_BYTES: Final = 10
_SIZES: Final = {FIXED64: 8, FIXED32: 4}


class Malformed(Exception):  # noqa: N818 # it becomes a Quarantined and is no error of the program
    """The bytes are not in the wire format. `torn` says that they only end too early."""

    def __init__(self, problem: str, *, torn: bool = False) -> None:
        super().__init__(problem)
        self.torn = torn


class Field(NamedTuple):
    """One field: its value is `data[start:end]`. Not `whole` means that the range ended inside it."""

    number: int
    wire_type: int
    start: int
    end: int
    whole: bool = True


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number and where it ends. Raises Malformed."""
    if position < end and data[position] < 0x80:  # as most tags and many lengths are
        return data[position], position + 1
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if position + count >= end:
            raise Malformed("it ends inside a number", torn=True)
        byte = data[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise Malformed("a number of more than 10 bytes")


def read_fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message `data[start:end]`; the last is not whole when it goes beyond the end.

    Raises Malformed where no field can begin.
    """
    while start < end:
        tag, position = read_varint(data, start, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise Malformed("a field of number 0")
        if wire_type == VARINT:
            _, stop = read_varint(data, position, end)
        elif wire_type == LENGTH:
            size, position = read_varint(data, position, end)
            stop = position + size
        elif wire_type in _SIZES:
            stop = position + _SIZES[wire_type]
        else:
            raise Malformed(f"a field of wire type {wire_type}")
        yield Field(number, wire_type, position, min(stop, end), stop <= end)
        start = stop
