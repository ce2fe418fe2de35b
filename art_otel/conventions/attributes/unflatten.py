"""Unflatten: lists and objects that a convention flattens to one attribute a value, `prefix.0.role`, ….

Invariant: a list that lost entries (the SDK drops the oldest attributes of a span beyond 128) is unknown, not shorter.
"""

from itertools import accumulate, chain
from operator import itemgetter

import msgspec

from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames, Shape
from art_otel.conventions.attributes.reader import AttributeReader, field_of
from art_otel.spans import Attributes, Value


def unflatten(reader: AttributeReader, prefix: str) -> list[Value] | None:
    """Rebuild the list below `prefix`; None when there is none, or when entries are missing, which is a gap."""
    shape = reader.names.lists.get(prefix)
    if not isinstance(shape, tuple):
        if shape is not None or reader.names.starting(f"{prefix}."):
            reader.gap("dropped", prefix, field=field_of(prefix))
        return None
    return [_value_of(entry, reader.attributes) for entry in shape]


def numbered(value: Value) -> list[tuple[int, Value]]:
    """The entries of a list below another, with their numbers; a list with holes in it stayed an object."""
    entries = values.items(value)
    if entries is not None:
        return list(enumerate(entries))
    fields = values.mapping(value) or {}
    return sorted(
        ((int(step), entry) for step, entry in fields.items() if step.isascii() and step.isdigit()), key=itemgetter(0)
    )


class FlatList(msgspec.Struct, frozen=True):
    """A flattened list of objects, known by names only: `names` has those of each entry, one entry after the other.

    `counts[n]` is how many entries the first n names make up; no n is in it that ends within an entry.
    """

    shapes: tuple[dict[str, Shape], ...]
    names: tuple[str, ...]
    counts: dict[int, int]

    def values(self, attributes: Attributes) -> list[tuple[str, Value]]:
        """Pair each name with its value."""
        return list(zip(self.names, map(attributes.__getitem__, self.names), strict=True))

    def entries(self, attributes: Attributes, start: int) -> list[dict[str, Value]]:
        """Rebuild the entries from position `start` on."""
        return [_object_of(shape, attributes) for shape in self.shapes[start:]]


def flat_list(names: AttributeNames, prefix: str) -> FlatList | None:
    """The flattened list below `prefix`, if all its entries are objects."""
    shape = names.lists.get(prefix)
    shapes = [entry for entry in shape if isinstance(entry, dict)] if isinstance(shape, tuple) else []
    if not shapes or len(shapes) != len(shape or ()):
        return None
    leaves = [_leaves(shape) for shape in shapes]
    ends = accumulate(map(len, leaves))
    return FlatList(
        shapes=tuple(shapes),
        names=tuple(chain.from_iterable(leaves)),
        counts={end: position for position, end in enumerate((0, *ends))},
    )


def _leaves(shape: Shape) -> list[str]:
    """The attribute names in a shape."""
    if isinstance(shape, str):
        return [shape]
    return [name for inner in (shape if isinstance(shape, tuple) else shape.values()) for name in _leaves(inner)]


def _object_of(shape: dict[str, Shape], attributes: Attributes) -> dict[str, Value]:
    return {step: _value_of(inner, attributes) for step, inner in shape.items()}


def _value_of(shape: Shape, attributes: Attributes) -> Value:
    """The value of a shape."""
    if isinstance(shape, str):
        value = attributes[shape]
        return _with_lists(value) if isinstance(value, dict) else value
    if isinstance(shape, tuple):
        return [_value_of(entry, attributes) for entry in shape]
    return _object_of(shape, attributes)


def _with_lists(value: Value) -> Value:
    """Turn every object in a value whose keys are 0, 1, … into a list."""
    fields = values.mapping(value)
    if fields is None:
        return value
    lists = {name: _with_lists(inner) for name, inner in fields.items()}
    if all(str(position) in lists for position in range(len(lists))):
        return [lists[str(position)] for position in range(len(lists))]
    return lists
