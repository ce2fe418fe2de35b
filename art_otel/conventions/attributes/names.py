"""AttributeNames: the names of a span's attributes, and what follows from them alone.

The spans of one instrumentor have the same names, so what was computed of a set of names is kept for the next span.
Invariant: memory holds at most `REMEMBERED` sets, each of at most `REMEMBERED_LENGTH` characters.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

REMEMBERED: Final = 256
REMEMBERED_LENGTH: Final = 16_384

Shape: TypeAlias = str | dict[str, "Shape"] | tuple["Shape", ...]
"""How attributes make up a value: the name of one, or an object or a list of shapes."""

MAX_NAME: Final = 256
"""Longer names are split each time: they are few, and keeping them would hold too much memory."""

MAX_STEPS: Final = 64
"""A name with more steps keeps the rest as one: shapes must not run out of stack."""

_FIRST_INDEX: Final = re.compile(r"\.(?=[0-9]+(?:\.|$))")

_Tree: TypeAlias = dict[str, "str | _Tree"]
_Result = TypeVar("_Result")


class AttributeNames:
    """The names of attributes, in their order."""

    __slots__ = ("_lists", "_memo", "_names", "_starting")

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = dict.fromkeys(names)
        self._starting: dict[str | tuple[str, ...], tuple[str, ...]] = {}
        self._lists: dict[str, Shape] | None = None
        self._memo: dict[object, Any] = {}

    def memo(self, compute: Callable[["AttributeNames"], _Result]) -> _Result:
        """The result of a function of these names, computed once; it must be a function of a module."""
        try:
            return self._memo[compute]
        except KeyError:
            result = self._memo[compute] = compute(self)
            return result

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that are both here and in `names`, in the order of `names`."""
        return tuple([name for name in names if name in self._names])

    def starting(self, prefix: str | tuple[str, ...]) -> tuple[str, ...]:
        """The names that start with a prefix, or with one of several."""
        matches = self._starting.get(prefix)
        if matches is None:
            matches = self._starting[prefix] = tuple([name for name in self._names if name.startswith(prefix)])
        return matches

    @property
    def lists(self) -> Mapping[str, Shape]:
        """The lists flattened to `prefix.<n>` or `prefix.<n>.…`, by prefix; not a tuple where entries are missing."""
        if self._lists is None:
            trees: dict[str, _Tree] = {}
            for name in self._names:
                position = _split_cached(name) if len(name) <= MAX_NAME else _split(name)
                if position is not None:
                    prefix, path, last = position
                    _put(trees.setdefault(prefix, {}), path, last, name)
            self._lists = {prefix: _shape(tree) for prefix, tree in trees.items()}
        return self._lists


def _split(name: str) -> tuple[str, list[str], str] | None:
    """Split a name into what precedes its first index, the steps from there to the last one, and the last step."""
    index = _FIRST_INDEX.search(name)
    if index is None:
        return None
    *path, last = name[index.end() :].split(".", MAX_STEPS)
    return name[: index.start()], path, last


_split_cached: Final = lru_cache(maxsize=4096)(_split)


def _put(tree: _Tree, path: list[str], last: str, name: str) -> None:
    """Put a name at a path. A name that is also a prefix of others stays what it was first."""
    for step in path:
        inner = tree.get(step)
        if inner is None:
            inner = tree[step] = {}
        elif isinstance(inner, str):
            return
        tree = inner
    if last not in tree:
        tree[last] = name


def _shape(tree: _Tree) -> Shape:
    """Turn every object of a tree whose keys are 0, 1, … into a list."""
    shapes: dict[str, Shape] = {
        step: inner if isinstance(inner, str) else _shape(inner) for step, inner in tree.items()
    }
    if "0" not in shapes:
        return shapes
    entries = [shapes.get(str(position)) for position in range(len(shapes))]
    return shapes if None in entries else tuple(entry for entry in entries if entry is not None)


_REMEMBERED_NAMES: Final[dict[tuple[str, ...], AttributeNames]] = {}


def names_of(attributes: Iterable[str]) -> AttributeNames:
    """The names of these attributes; equal names are one object, so that `memo` serves all spans that have them."""
    names = tuple(attributes)
    attribute_names = _REMEMBERED_NAMES.get(names)
    if attribute_names is None:
        attribute_names = AttributeNames(names)
        if sum(map(len, names)) <= REMEMBERED_LENGTH:
            if len(_REMEMBERED_NAMES) >= REMEMBERED:
                _REMEMBERED_NAMES.clear()
            _REMEMBERED_NAMES[names] = attribute_names
    return attribute_names
