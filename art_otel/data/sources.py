"""Sources: trajectories in files or in memory, as numbered chunks. A chunk is what is read at once.

    chunk 0   row group 0 of part-00000   trajectories 0 to 999
    chunk 1   row group 1 of part-00000   trajectories 1000 to 1499

Invariant: the same sources give the same chunks in the same order. A rollout that several sources have is in one chunk
only, and equal group ids of several runs are made different (`store.combine`).
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from pathlib import Path
from typing import Final, TypeAlias, cast

from art_otel import storage
from art_otel.data.columns import CHOOSING, ColumnPart, Columns, columns_of, join_columns
from art_otel.errors import StorageError, StoreError, UsageError
from art_otel.store import (
    Combined,
    Part,
    RowGroup,
    Wanted,
    combine,
    find_all_files,
    groups_of,
    read_keys,
    read_row_group,
)
from art_otel.trajectories import GroupKey, Trajectory, TrajectoryGroup, with_later_rewards

Source: TypeAlias = str | Path | Trajectory | TrajectoryGroup | Iterable[Trajectory]
Sources: TypeAlias = Source | Iterable[Source] | Combined
"""Files, folders, globs and URLs of a dataset, or trajectories and groups in memory, also mixed."""

_ROWS_IN_MEMORY: Final = 1024

_Version: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A row group of a file, or a slice of the trajectories in memory, with `rows` trajectories.

    `first` is the number of its first trajectory. `version` identifies the file's content. `left_out` is the reason why
    none of its trajectories is selected, if the manifest shows this; otherwise None.
    """

    first: int
    rows: int
    stored: RowGroup | Sequence[Trajectory]
    version: "_Version | None" = None
    left_out: str | None = None

    @property
    def numbers(self) -> range:
        """The numbers of its trajectories."""
        return range(self.first, self.first + self.rows)

    @property
    def is_stored(self) -> bool:
        """Whether its trajectories are in a file."""
        return isinstance(self.stored, RowGroup)

    @property
    def name(self) -> str:
        """A name that differs between files, but is the same for a copy of the file in another folder."""
        if not isinstance(self.stored, RowGroup):
            return repr([one.rollout_id for one in self.stored])
        size = 0 if self.version is None else self.version[0]
        return repr((Path(self.stored.file).name, size, self.stored.index))

    def read(self, wanted: Wanted, numbers: Sequence[int] | None = None) -> Iterator[Trajectory]:
        """Read the chunk's trajectories, or those with these numbers; `wanted` has no effect on those in memory.

        Raises StoreError, also if the file was replaced after it was listed.
        """
        rows: list[int] | None = None
        if numbers is not None and list(numbers) != list(self.numbers):  # taking every row costs more than reading all
            rows = [number - self.first for number in numbers]
        if not isinstance(self.stored, RowGroup):
            return iter(self.stored if rows is None else [self.stored[row] for row in rows])
        self.check()
        return read_row_group(self.stored, wanted, rows)

    def check(self) -> None:
        """Raise StoreError if the chunk's file was replaced after it was listed."""
        if not isinstance(self.stored, RowGroup) or _tells_content(self.stored):
            return
        if _version(self.stored) != self.version:
            raise StoreError(f"{storage.shown(self.stored.file)}: was rewritten while it was read; start again")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedChunks:
    """The chunks of some sources, and counts of how these were combined (`store.Combined`)."""

    chunks: tuple[Chunk, ...]
    repeated: int
    shared_group_ids: int


def list_chunks(sources: Sources, why_none_of: Callable[[Part], str | None] = lambda _: None) -> ListedChunks:
    """List the chunks of the sources, in order. `why_none_of` says why no trajectory of a part is selected.

    Raises StoreError for a path without trajectory files, UsageError for a file that is given twice.
    """
    combined = sources if isinstance(sources, Combined) else _combined(sources)
    chunks: list[Chunk] = []
    first = 0
    for group in (group for file in combined.files for group in groups_of(file)):
        left_out = None if group.part is None else why_none_of(group.part)
        chunks.append(Chunk(first=first, rows=group.rows, stored=group, version=_version(group), left_out=left_out))
        first += group.rows
    for start in range(0, len(combined.trajectories), _ROWS_IN_MEMORY):
        stored = combined.trajectories[start : start + _ROWS_IN_MEMORY]
        chunks.append(Chunk(first=first, rows=len(stored), stored=stored))
        first += len(stored)
    return ListedChunks(chunks=tuple(chunks), repeated=combined.repeated, shared_group_ids=combined.shared_group_ids)


def list_sources(sources: object) -> list[Source]:
    """The sources as a list, because they are read more than once. They are not checked."""
    single = isinstance(sources, str | Path | Trajectory | TrajectoryGroup)
    return list(cast(Iterable[Source], sources if isinstance(sources, Iterable) and not single else [sources]))


def why_left_out(chunks: Iterable[Chunk]) -> list[str | None]:
    """Why each trajectory's part is left out unread; None if it is not. Shape: (trajectories,)."""
    return [chunk.left_out for chunk in chunks for _ in range(chunk.rows)]


def read_columns(chunks: Sequence[Chunk], parts: frozenset[ColumnPart] = CHOOSING, *, whole: bool = False) -> Columns:
    """Read the columns of the chunks' trajectories (`stored_columns.read_stored`).

    Chunks that are left out have only unknown values, unless the `whole` is asked for. Raises StoreError, also if a
    file was replaced after it was listed.
    """
    read: list[Columns] = []
    stored = [(chunk.stored, chunk) for chunk in chunks if isinstance(chunk.stored, RowGroup)]
    in_memory = [one for chunk in chunks if not isinstance(chunk.stored, RowGroup) for one in chunk.stored]
    if stored:
        from art_otel.data.stored_columns import read_stored  # noqa: PLC0415 # loads pyarrow

        is_left_out = [chunk.left_out is not None and not whole for _, chunk in stored]
        for chunk in {group.file: chunk for group, chunk in stored}.values():
            chunk.check()
        groups = [group for group, _ in stored]
        read.append(read_stored(groups, is_left_out, parts))
    if in_memory or not stored:
        read.append(columns_of(in_memory, parts))
    return join_columns(read)


def read_numbered(
    chunks: Iterable[Chunk], wanted: Wanted, numbers: Container[int] | None = None
) -> Iterator[tuple[int, Trajectory]]:
    """Read the trajectories with these numbers (None: all), each with its number."""
    for chunk in chunks:
        chosen = [number for number in chunk.numbers if numbers is None or number in numbers]
        if chosen:
            yield from zip(chosen, chunk.read(wanted, chosen), strict=True)


def read_ids(chunks: Iterable[Chunk], numbers: Iterable[int]) -> dict[int, str]:
    """The rollout ids of the trajectories of these numbers. Raises StoreError."""
    wanted = set(numbers)
    holding = [chunk for chunk in chunks if not wanted.isdisjoint(chunk.numbers)]
    keys = read_keys([chunk.stored for chunk in holding if isinstance(chunk.stored, RowGroup)])
    ids: dict[int, str] = {}
    for chunk in holding:
        if isinstance(chunk.stored, RowGroup):
            of_chunk = [rollout_id for rollout_id, _, _ in next(keys)]
        else:
            of_chunk = [one.rollout_id for one in chunk.stored]
        ids |= {number: one for number, one in zip(chunk.numbers, of_chunk, strict=True) if number in wanted}
    return ids


def _combined(sources: object) -> Combined:
    listed = list_sources(sources)
    files = find_all_files([source for source in listed if isinstance(source, str | Path)])
    return combine(
        files, [one for source in listed if not isinstance(source, str | Path) for one in _in_memory(source)]
    )


def _in_memory(source: object) -> Iterator[Trajectory]:
    """The trajectories of a group, or of a list of trajectories, with later rewards.

    Members of a group are compared with each other, whatever group, training step and gathering each names: the group
    that the caller made is the group. They have its id, and the step and the gathering of its first member.
    """
    if isinstance(source, Trajectory):
        yield with_later_rewards(source)  # pyright: ignore[reportUnknownArgumentType] # of any result
    elif isinstance(source, TrajectoryGroup):
        for member in source:
            first = source.trajectories[0]
            key = GroupKey(first.training_step, first.gathering, source.group_id)
            yield replace(with_later_rewards(member), **key._asdict())
    elif isinstance(source, Iterable) and not isinstance(source, bytes):
        for member in cast(Iterable[object], source):
            yield from _in_memory(member)
    else:
        if isawaitable(source):
            raise UsageError(f"{source!r:.100} was not awaited; await it and pass the trajectories that it returns")
        raise UsageError(f"{source!r:.100}: give paths of trajectory files, or trajectories")


def _tells_content(group: RowGroup) -> bool:
    """Whether a file's name identifies its content (parts in an object store), so that no request is needed."""
    return group.part is not None and storage.is_url(group.file)


def _version(group: RowGroup) -> _Version:
    """A version that identifies the content of the row group's file. Raises StoreError if the file is gone."""
    file = group.file
    if group.part is not None and storage.is_url(file):
        return (group.part.bytes,)
    try:
        version = storage.version_of(file)
    except (OSError, StorageError) as error:
        raise StoreError(f"{storage.shown(file)}: cannot be read: {error}") from error
    if version is None:
        raise StoreError(
            f"{storage.shown(file)}: is gone, because the dataset was replaced while it was read; start again"
        )
    return version
