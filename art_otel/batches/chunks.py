"""Chunk: trajectories that are read together, from a row group of a file or from memory.

Invariant: the chunks of the same sources are the same, in the same order, whenever they are listed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

from art_otel import storage
from art_otel.batches.duplicates import find_duplicates
from art_otel.errors import StoreError, UsageError
from art_otel.store import RowGroup, Wanted, read_row_group, row_groups
from art_otel.trajectories import Trajectory, TrajectoryGroup

Source: TypeAlias = str | Path | Trajectory | TrajectoryGroup
Sources: TypeAlias = Source | Iterable[Source]
"""Files, folders and globs of a dataset, or trajectories in memory."""

DUPLICATE: Final = "duplicate"
"""Why a recording is left out whose rollout is read from another file."""

_ROWS_IN_MEMORY = 1024

_Version: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """`rows` trajectories. `first` is the number of trajectories before it, `version` tells the file's content.

    `duplicates` has a byte a row, 1 where the rollout is read from another file; it is empty where there is none.
    """

    first: int
    rows: int
    stored: RowGroup | Sequence[Trajectory]
    version: "_Version | None" = None
    duplicates: bytes = b""

    @property
    def numbers(self) -> range:
        """The numbers of its trajectories."""
        return range(self.first, self.first + self.rows)

    def is_duplicate(self, number: int) -> bool:
        """Whether the trajectory of this number is read from another file, so that it is left out here."""
        return bool(self.duplicates) and bool(self.duplicates[number - self.first])

    def read(self, wanted: Wanted, numbers: Sequence[int] | None = None) -> Iterator[Trajectory]:
        """Its trajectories, or those of these numbers; those in memory are whole whatever is wanted.

        Raises StoreError, also where the file is not the one that was listed: what was found out about it would be
        taken for something else.
        """
        rows: list[int] | None = None
        if numbers is not None and list(numbers) != list(self.numbers):  # taking every row costs more than reading all
            rows = [number - self.first for number in numbers]
        if not isinstance(self.stored, RowGroup):
            return iter(self.stored if rows is None else [self.stored[row] for row in rows])
        if _version(self.stored.file) != self.version:
            raise StoreError(f"{self.stored.file}: was written anew while it was read; start again")
        return read_row_group(self.stored, wanted, rows)


def list_chunks(sources: Sources) -> tuple[Chunk, ...]:
    """The chunks of the sources, in order, with the rollouts that stand in several files marked in all but one.

    Raises StoreError for a path without trajectory files, UsageError for a file that is given twice.
    """
    chunks: list[Chunk] = []
    first = 0
    for stored in _stored(sources):
        if isinstance(stored, RowGroup):
            chunk = Chunk(first=first, rows=stored.rows, stored=stored, version=_version(stored.file))
        else:
            chunk = Chunk(first=first, rows=len(stored), stored=stored)
        chunks.append(chunk)
        first += chunk.rows
    duplicates = find_duplicates([chunk.stored for chunk in chunks if isinstance(chunk.stored, RowGroup)])
    if not duplicates:
        return tuple(chunks)
    marks = (duplicates.get(chunk.stored, b"") if isinstance(chunk.stored, RowGroup) else b"" for chunk in chunks)
    return tuple(replace(chunk, duplicates=own) for chunk, own in zip(chunks, marks, strict=True))


def one_by_one(sources: object) -> list[Source]:
    """The sources as a list, which can be gone through again and may hold what is none."""
    single = isinstance(sources, str | Path | Trajectory | TrajectoryGroup)
    return list(cast(Iterable[Source], sources if isinstance(sources, Iterable) and not single else [sources]))


def _stored(sources: Sources) -> Iterator[RowGroup | Sequence[Trajectory]]:
    in_memory: list[Trajectory] = []
    files: set[Path] = set()
    for source in one_by_one(sources):
        if isinstance(source, Trajectory):
            in_memory.append(source)
        elif isinstance(source, TrajectoryGroup):
            in_memory.extend(_of_group(source))
        elif isinstance(source, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance] # not every caller is typed
            groups = row_groups(source)
            found = {Path(group.file).resolve() for group in groups}
            if twice := found & files:
                raise UsageError(f"{source}: {min(twice)} is given twice, so that all in it would be trained twice")
            files |= found
            yield from groups
        else:
            raise UsageError(f"{source!r:.100}: give paths of trajectory files, or trajectories")
    for start in range(0, len(in_memory), _ROWS_IN_MEMORY):
        yield in_memory[start : start + _ROWS_IN_MEMORY]


def _of_group(group: TrajectoryGroup) -> list[Trajectory]:
    """The group's trajectories, which have its id where they have none."""
    return [one if one.group_id is not None else replace(one, group_id=group.group_id) for one in group.trajectories]


def _version(file: str) -> _Version:
    """Size, time of change and inode (of a store the size alone): another file of the same name has another."""
    if storage.is_url(file):
        return (storage.size_of(file) or 0, 0, 0)
    try:
        found = Path(file).stat()
    except FileNotFoundError:
        raise StoreError(f"{file}: is gone: the dataset was replaced while it was read; start again") from None
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error
    return (found.st_size, found.st_mtime_ns, found.st_ino)
