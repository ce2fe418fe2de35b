"""Places: where an export may write.

Invariant: while an export reads a dataset no file of the dataset is replaced, and no Parquet file is put among those of
a folder or glob that is read.

Sinks name their files only while they write, so what is read is kept where `whole_file` and they can ask for it.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from art_otel.data.sources import Sources, list_sources
from art_otel.errors import UsageError
from art_otel.store import SUFFIX, row_groups


class _Read(NamedTuple):
    """Files, and folders whose files are read, all resolved; and the globs that found them."""

    places: frozenset[Path] = frozenset()
    globs: tuple[Path, ...] = ()


_NOTHING: Final = _Read()
_read: Final[ContextVar[_Read]] = ContextVar("read", default=_NOTHING)


@contextmanager
def reading(sources: Sources) -> Generator[None]:
    """Within it `check_place` keeps the sources safe. Raises StoreError for a path without trajectory files."""
    read: set[Path] = set()
    globs: list[Path] = []
    for source in list_sources(sources):
        if isinstance(source, str | Path):
            read.add(Path(source).resolve())
            files = {Path(group.file).resolve() for group in row_groups(source)}
            read |= files
            if not Path(source).is_file():
                read |= {file.parent for file in files}
            if not Path(source).exists():
                globs.append(Path(source).absolute())
    before = _read.set(_Read(frozenset(read), tuple(globs)))
    try:
        yield
    finally:
        _read.reset(before)


def check_place(path: Path) -> None:
    """Raise UsageError for a file that would replace one that is read, or become one of a folder's that is read."""
    target, read = path.resolve(), _read.get()
    joins = target.parent in read.places or any(_finds(pattern, path.absolute()) for pattern in read.globs)
    if target in read.places or (path.suffix == SUFFIX and joins):
        raise UsageError(f"{path}: lies in the dataset that is read; choose another folder")


def _finds(pattern: Path, path: Path) -> bool:
    """Whether a glob would find the file or its folder."""
    return _matches(pattern.parts, path.parts) or _matches(pattern.parts, path.parent.parts)


def _matches(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])
