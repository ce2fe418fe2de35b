"""Quarantined to the structure of protobuf: fields replaced, repeated, moved and retyped; lengths stay right."""

import random
from typing import TypeAlias

from tests.fuzz.hostile import FRAGMENTS
from tests.sources.requests import prefixed, varint

Chance = random.Random
LENGTH = 2
FIXED = {1: 8, 5: 4}
HOSTILE_VARINTS = (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**70)
HOSTILE_FIXED = ((1, bytes(8)), (1, b"\xff" * 8), (5, b"\xff" * 4), (3, b""), (4, b""))
MAX_DEPTH = 14

Field: TypeAlias = list
"""`[number, wire type, int | bytes | list of fields]`."""


def damage_protobuf(data: bytes, others: list[bytes], chance: Chance) -> bytes:
    """A file of messages, each with its length before it or one alone, with one to six fields damaged."""
    messages = _messages(data)
    trees = [fields_of(message) for message in messages or [data]]
    others = _messages(chance.choice(others)) or [data]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        _damage_fields(chance.choice(trees), fields_of(chance.choice(others)), chance)
    written = [b"".join(map(_written, tree)) for tree in trees]
    return prefixed(*written) if messages else written[0]


def _messages(data: bytes) -> list[bytes]:
    """The messages of a framed file, none when it is not framed."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        if at + 4 + size > len(data):
            return []
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def fields_of(data: bytes) -> list[Field]:
    """The fields of a message, taken apart as deep as bytes look like messages."""
    return _parsed(data, MAX_DEPTH) or []


def _parsed(data: bytes, depth: int) -> list[Field] | None:
    fields, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not number or number > 200:
            return None
        if wire == 0:
            value, at = _varint(data, at)
        elif wire in FIXED:
            value, at = data[at : at + FIXED[wire]], at + FIXED[wire]
        elif wire == LENGTH:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            value = (_parsed(value, depth - 1) if depth and value else None) or value
        else:
            return None
        if at > len(data):
            return None
        fields.append([number, wire, value])
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at
    return value, len(data) + 1


def _written(field: Field) -> bytes:
    number, wire, value = field
    if isinstance(value, list):
        value = b"".join(map(_written, value))
    if isinstance(value, int):
        return varint(number << 3 | wire) + varint(value)
    return varint(number << 3 | wire) + (varint(len(value)) if wire == LENGTH else b"") + value


def _lists(fields: list[Field]) -> list[list[Field]]:
    found, todo = [], [fields]
    while todo:
        found.append(todo.pop())
        todo += [field[2] for field in found[-1] if isinstance(field[2], list)]
    return found


def _damage_fields(fields: list[Field], others: list[Field], chance: Chance) -> None:
    holder = chance.choice([found for found in _lists(fields) if found] or [fields])
    if not holder:
        holder.append([1, LENGTH, b""])
    at = chance.randrange(len(holder))
    match chance.randrange(9):
        case 0:
            del holder[at]
        case 1:
            holder.insert(at, holder[at])
        case 2:
            chance.shuffle(holder)
        case 3:
            holder[at] = [chance.randrange(1, 20), *holder[at][1:]]
        case 4:
            holder[at] = [holder[at][0], 0, chance.choice(HOSTILE_VARINTS)]
        case 5:
            holder[at] = [holder[at][0], LENGTH, chance.choice(FRAGMENTS)]
        case 6:
            holder[at] = [holder[at][0], LENGTH, _nested(holder[at], chance)]
        case 7:
            holder[at] = chance.choice(chance.choice([found for found in _lists(others) if found] or [holder]))
        case _:
            holder[at] = [
                holder[at][0],
                *chance.choice(((1, bytes(8)), (1, b"\xff" * 8), (5, b"\xff" * 4), (3, b""), (4, b""))),
            ]


def _nested(field: Field, chance: Chance) -> bytes:
    """AnyValue arrays (field 5, then 1) inside each other."""
    inner = _written([1, LENGTH, b"x"])
    for _ in range(chance.choice((20, 32, 33, 60, 300))):
        inner = _written([chance.choice((5, 6)), LENGTH, _written([1, LENGTH, inner])])
    return inner if chance.random() < 0.5 else _written([2, LENGTH, inner]) + _written(field)
