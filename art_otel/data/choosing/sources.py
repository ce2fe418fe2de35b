"""Sources: trajectories in files or in memory, in chunks that are read together.

Invariant: the same sources give the same chunks in the same order, and no rollout stands in two datasets that are read
together.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeAlias, cast

from art_otel import storage
from art_otel.errors import StorageError, StoreError, UsageError
from art_otel.store import Part, RowGroup, Wanted, read_keys, read_row_group, row_groups
from art_otel.trajectories import Trajectory, TrajectoryGroup

Source: TypeAlias = str | Path | Trajectory | TrajectoryGroup | Iterable[Trajectory]
Sources: TypeAlias = Source | Iterable[Source]
"""Files, folders, globs and URLs of a dataset, or trajectories and groups of them in memory."""

_ROWS_IN_MEMORY: Final = 1024

_Version: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """`rows` trajectories: a row group of a file, or a slice of those in memory.

    `first` is the number of trajectories before it, `version` tells the file's content. `left_out` is why none of them
    is selected, where that is known.
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

    def read(self, wanted: Wanted, numbers: Sequence[int] | None = None) -> Iterator[Trajectory]:
        """Read its trajectories, or those of these numbers; those in memory are whole whatever is wanted.

        Raises StoreError, also where the file was replaced after it was listed.
        """
        rows: list[int] | None = None
        if numbers is not None and list(numbers) != list(self.numbers):  # taking every row costs more than reading all
            rows = [number - self.first for number in numbers]
        if not isinstance(self.stored, RowGroup):
            return iter(self.stored if rows is None else [self.stored[row] for row in rows])
        if not _tells_content(self.stored) and _version(self.stored) != self.version:
            raise StoreError(f"{storage.shown(self.stored.file)}: was written anew while it was read; start again")
        return read_row_group(self.stored, wanted, rows)


def list_chunks(sources: Sources, why_none_of: Callable[[Part], str | None] = lambda _: None) -> tuple[Chunk, ...]:
    """List the chunks of the sources, in order. `why_none_of` says why no trajectory of a part is selected.

    Raises StoreError for a path without trajectory files, UsageError for a file that is given twice and for a rollout
    that stands in two datasets.
    """
    chunks: list[Chunk] = []
    first = 0
    for stored in _stored(sources):
        if isinstance(stored, RowGroup):
            left_out = None if stored.part is None else why_none_of(stored.part)
            version = _version(stored)
            chunk = Chunk(first=first, rows=stored.rows, stored=stored, version=version, left_out=left_out)
        else:
            chunk = Chunk(first=first, rows=len(stored), stored=stored)
        chunks.append(chunk)
        first += chunk.rows
    _check_distinct([chunk.stored for chunk in chunks if isinstance(chunk.stored, RowGroup)])
    return tuple(chunks)


def list_sources(sources: object) -> list[Source]:
    """List the sources, to go through them more than once; what is no source may be among them."""
    single = isinstance(sources, str | Path | Trajectory | TrajectoryGroup)
    return list(cast(Iterable[Source], sources if isinstance(sources, Iterable) and not single else [sources]))


def read_numbered(
    chunks: Iterable[Chunk], wanted: Wanted, numbers: Container[int] | None = None
) -> Iterator[tuple[int, Trajectory]]:
    """Read the trajectories of these numbers (None: all), each with its number. Nothing else is read."""
    for chunk in chunks:
        chosen = [number for number in chunk.numbers if numbers is None or number in numbers]
        if chosen:
            yield from zip(chosen, chunk.read(wanted, chosen), strict=True)


def _stored(sources: Sources) -> Iterator[RowGroup | Sequence[Trajectory]]:
    in_memory: list[Trajectory] = []
    files: set[Path] = set()
    for source in list_sources(sources):
        if isinstance(source, str | Path):
            groups = row_groups(source)
            locations = {Path(group.file).resolve() for group in groups}
            if twice := locations & files:
                raise UsageError(f"{source}: {min(twice)} is given twice, so that all in it would be trained twice")
            files |= locations
            yield from groups
        else:
            in_memory.extend(_in_memory(source))
    for start in range(0, len(in_memory), _ROWS_IN_MEMORY):
        yield in_memory[start : start + _ROWS_IN_MEMORY]


def _in_memory(source: object) -> Iterator[Trajectory]:
    """The trajectories of a group, which have its id where they have none, or of a list of trajectories."""
    if isinstance(source, Trajectory):
        yield source
    elif isinstance(source, TrajectoryGroup):
        for member in source:
            yield member if member.group_id is not None else replace(member, group_id=source.group_id)
    elif isinstance(source, Iterable) and not isinstance(source, bytes):
        for member in cast(Iterable[object], source):
            yield from _in_memory(member)
    else:
        raise UsageError(f"{source!r:.100}: give paths of trajectory files, or trajectories")


def _check_distinct(groups: Sequence[RowGroup]) -> None:
    """Raise UsageError for a rollout that two datasets hold: it would be trained twice.

    Several recordings in one dataset are runs that nobody numbered. One dataset is not read for it.
    """
    if len({group.dataset for group in groups}) < 2:
        return
    dataset_of: dict[bytes, str] = {}
    for group, keys in zip(groups, read_keys(groups), strict=True):
        for key in keys:
            digest = blake2b(repr(key).encode(), digest_size=16).digest()
            earlier = dataset_of.setdefault(digest, group.dataset)
            if earlier != group.dataset:
                raise UsageError(
                    f"rollout {key[0]!r} stands in {earlier} and in {group.dataset}, so it would be trained twice;"
                    " convert the dumps of both into one dataset: art-otel convert DUMP… --out DATASET"
                )


def _tells_content(group: RowGroup) -> bool:
    """Whether the name tells the content of an object: then no request has to."""
    return group.part is not None and storage.is_url(group.file)


def _version(group: RowGroup) -> _Version:
    """What tells its file from another of the same name."""
    file = group.file
    if group.part is not None and storage.is_url(file):
        return (group.part.bytes,)
    try:
        version = storage.version_of(file)
    except (OSError, StorageError) as error:
        raise StoreError(f"{storage.shown(file)}: cannot be read: {error}") from error
    if version is None:
        raise StoreError(f"{storage.shown(file)}: is gone: the dataset was replaced while it was read; start again")
    return version
