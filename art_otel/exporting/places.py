"""Places: where an export may write.

Invariant: while an export reads a dataset no file of the dataset is replaced, and no Parquet file is put among those of
a folder or glob that is read.

Sinks name their files only while they write, so what is read is kept where `whole_file` and they can ask for it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from art_otel.batches.chunks import Sources, one_by_one
from art_otel.errors import UsageError
from art_otel.store import row_groups
from art_otel.store.dataset import SUFFIX

_read: Final[ContextVar[frozenset[Path]]] = ContextVar("read", default=frozenset[Path]())
"""Files, and folders whose files are read, all resolved."""


@contextmanager
def reading(sources: Sources) -> Generator[None]:
    """Within it `check_place` keeps the sources safe. Raises StoreError for a path without trajectory files."""
    read: set[Path] = set()
    for source in one_by_one(sources):
        if isinstance(source, str | Path):
            read.add(Path(source).resolve())
            found = {group.file.resolve() for group in row_groups(source)}
            read |= found
            if not Path(source).is_file():
                read |= {file.parent for file in found}
    before = _read.set(frozenset(read))
    try:
        yield
    finally:
        _read.reset(before)


def check_place(path: Path) -> None:
    """Raise UsageError for a file that would replace one that is read, or become one of a folder's that is read."""
    place, read = path.resolve(), _read.get()
    if place in read or (path.suffix == SUFFIX and place.parent in read):
        raise UsageError(f"{path}: lies in the dataset that is read; choose another folder")
