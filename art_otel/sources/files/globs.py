"""Globs: patterns of paths, the same for files and for objects of a store.

Invariant: `*`, `?` and `[…]` stay inside a folder, and a part `**` is any folders, or all below as the last one.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

_GLOB: Final = re.compile(r"[*?\[]")


def is_glob(path: str) -> bool:
    """Whether a path is a pattern."""
    return _GLOB.search(path) is not None


def folder_of(glob: str) -> str:
    """The deepest folder in which all matches lie; empty for the current one."""
    return _GLOB.split(glob, maxsplit=1)[0].rpartition("/")[0]


def matches(path: str, glob: str) -> bool:
    """Whether a path matches."""
    return _match(path.split("/"), glob.split("/"))


def _match(path: Sequence[str], glob: Sequence[str]) -> bool:
    if not path or not glob:
        return not path and not glob
    if glob[0] != "**":
        return fnmatchcase(path[0], glob[0]) and _match(path[1:], glob[1:])
    return len(glob) == 1 or any(_match(path[at:], glob[1:]) for at in range(len(path)))
