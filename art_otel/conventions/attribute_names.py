"""Attribute names: the names of a span's attributes, split once into families, entries of lists, and rests.

    llm.input_messages.0.message.role    ┐  one family: indexes become 0
    llm.input_messages.12.message.role   ┘

Spans of one instrumentor have equal `NameFamilies`, however long their prompts are, so what follows from names alone
(which dialects to read, where parameters are) is computed once for all of them. `AttributeNames` are the names of one
span, and the lists that are flattened over them.

Invariant: memory has at most `REMEMBERED` sets of families, each of at most `REMEMBERED_LENGTH` characters, and
`REMEMBERED_NAMES` names.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import eq, itemgetter
from typing import Any, Final, NamedTuple, TypeVar

REMEMBERED: Final = 256
REMEMBERED_LENGTH: Final = 16_384
REMEMBERED_NAMES: Final = 1 << 16

MAX_NAME: Final = 256
"""Longer names are not cached: they are few, and would take too much memory."""

_FIRST_INDEX: Final = re.compile(r"\.([0-9]+)(?:\.|\Z)")
_INDEX: Final = re.compile(r"(?<=\.)[0-9]+(?=\.|\Z)")

_Result = TypeVar("_Result")


class SplitName(NamedTuple):
    """The name of an attribute, split at its first index.

        llm.input_messages.12.message.tool_calls.3.tool_call.id
        prefix             entry rest
        family: llm.input_messages.0.message.tool_calls.0.tool_call.id

    The family is the same for every entry of a list. A name that ends with its index, such as
    `art.tokens.completion.1`, has no rest and is a family of its own. A name without an index also has no prefix.
    """

    family: str
    prefix: str | None = None
    entry: str = ""
    rest: str | None = None


class _SplitNames(dict[str, SplitName]):
    """A cache of split names: most spans repeat the same names."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def __missing__(self, name: str) -> SplitName:
        if len(name) > MAX_NAME:
            return _split(name)
        if len(self) >= REMEMBERED_NAMES:
            self.clear()
            self._texts.clear()
        family, prefix, entry, rest = _split(name)
        once = self._texts.setdefault  # the entries of a list have few different families, prefixes and rests
        split = self[name] = SplitName(
            once(family, family), prefix and once(prefix, prefix), entry, rest and once(rest, rest)
        )
        return split


def _split(name: str) -> SplitName:
    first = _FIRST_INDEX.search(name)
    if first is None:
        return SplitName(name)
    prefix = name[: first.start()]
    if first.end(1) == len(name):
        return SplitName(name, prefix, first[1])
    return SplitName(_INDEX.sub("0", name), prefix, first[1], name[first.end() :])


_SPLIT_NAMES: Final = _SplitNames()


def is_of_list(family: str) -> bool:
    """Whether a family is of entries of a list, so that a span may have several names of it."""
    return _SPLIT_NAMES[family].rest is not None


class NameFamilies:
    """The families of a span's names, in order. All spans with the same families share one object."""

    __slots__ = ("_families", "_memo", "_starting")

    def __init__(self, families: tuple[str, ...]) -> None:
        self._families = dict.fromkeys(families)
        self._starting: dict[str | tuple[str, ...], tuple[str, ...]] = {}
        self._memo: dict[object, Any] = {}

    def memo(self, compute: Callable[["NameFamilies"], _Result]) -> _Result:
        """The result of `compute` for these families, computed once. `compute` must be a function of a module.

        A lambda would be a new key at each call, and fill the memory.
        """
        try:
            return self._memo[compute]
        except KeyError:
            result = self._memo[compute] = compute(self)
            return result

    def __contains__(self, name: str) -> bool:
        return name in self._families

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that are both here and in `names`, in the order of `names`."""
        return tuple([name for name in names if name in self._families])

    def starting(self, prefix: str | tuple[str, ...]) -> tuple[str, ...]:
        """The families that start with a prefix, or with one of several."""
        matches = self._starting.get(prefix)
        if matches is None:
            matches = self._starting[prefix] = tuple([name for name in self._families if name.startswith(prefix)])
        return matches


_REMEMBERED_FAMILIES: Final[dict[tuple[str, ...], NameFamilies]] = {}


def families_of(names: Iterable[str]) -> NameFamilies:
    """The families of these names; equal ones are one object, so that `memo` serves all spans that have them."""
    # map and itemgetter, so that no Python bytecode runs for names that were split before.
    families = tuple(dict.fromkeys(map(itemgetter(0), map(_SPLIT_NAMES.__getitem__, names))))
    name_families = _REMEMBERED_FAMILIES.get(families)
    if name_families is None:
        name_families = NameFamilies(families)
        if sum(map(len, families)) <= REMEMBERED_LENGTH:
            if len(_REMEMBERED_FAMILIES) >= REMEMBERED:
                _REMEMBERED_FAMILIES.clear()
            _REMEMBERED_FAMILIES[families] = name_families
    return name_families


class AttributeNames:
    """The names of one span's attributes, in their order."""

    __slots__ = ("_names", "_splits", "families")

    def __init__(self, names: Collection[str], families: NameFamilies | None = None) -> None:
        self._names = names
        self._splits: list[SplitName] | None = None
        self.families = families_of(names) if families is None else families

    def of(self, families: Sequence[str]) -> Sequence[str]:
        """The names of some of the families; nearly always these have one each."""
        if not any(map(is_of_list, families)):
            return families
        return [name for name in self._names if _SPLIT_NAMES[name].family in families]

    def count(self, family: str) -> int:
        """How many names of a family there are."""
        return [*map(itemgetter(0), self._all_splits())].count(family)

    def entries(self, prefix: str) -> Mapping[str, Mapping[str | None, str]]:
        """The names of the list below `prefix`, by their entry and rest."""
        splits = self._all_splits()
        # A prompt may have thousands of names: those of other lists are skipped without Python bytecode.
        is_below = map(eq, map(itemgetter(1), splits), repeat(prefix))
        entries: dict[str, dict[str | None, str]] = {}
        for name, (_, _, entry, rest) in compress(zip(self._names, splits, strict=True), is_below):
            names = entries.get(entry)
            if names is None:
                names = entries[entry] = {}
            names[rest] = name
        return entries

    def _all_splits(self) -> list[SplitName]:
        if self._splits is None:
            self._splits = [*map(_SPLIT_NAMES.__getitem__, self._names)]
        return self._splits
