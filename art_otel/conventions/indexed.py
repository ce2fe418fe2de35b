"""Indexed attributes: lists and objects that a convention spreads over names, `prefix.0.role`, `prefix.0.content`, ….

Invariant: a list that lost entries (the SDK drops the oldest attributes of a span beyond 128) is unknown, not shorter.
"""

from art_otel.conventions.reading import Reading
from art_otel.conventions.values import mapping
from art_otel.spans import Value


def indexed(reading: Reading, prefix: str) -> list[Value] | None:
    """The list below `prefix`; None when there is none, or when entries are missing (then `prefix` is cut)."""
    below = f"{prefix}."
    tree: dict[str, Value] = {}
    for name, value in reading.attributes.items():
        if name.startswith(below):
            _put(tree, name.removeprefix(below).split("."), value)
    if not tree:
        return None
    entries = _lists(tree)
    if isinstance(entries, list):
        return entries
    reading.unreadable(prefix)
    return None


def _put(tree: dict[str, Value], path: list[str], value: Value) -> None:
    """Put a value at a path. A name that is both a value and a prefix of others keeps the first."""
    for step in path[:-1]:
        inner = mapping(tree.setdefault(step, {}))
        if inner is None:
            return
        tree = inner
    tree.setdefault(path[-1], value)


def _lists(tree: dict[str, Value]) -> dict[str, Value] | list[Value]:
    """The tree with every object whose names are 0, 1, … as a list."""
    lists = {name: _lists(inner) if (inner := mapping(value)) else value for name, value in tree.items()}
    if all(str(position) in lists for position in range(len(lists))):
        return [lists[str(position)] for position in range(len(lists))]
    return lists
