"""Writing: trajectories to a dataset or to one file, and parts of a dataset to others with the rows that count.

Invariant: what was there before is replaced when everything is written, and only if art-otel wrote it. A row of a part
is copied as it is, and it is told where each went; memory holds one row group.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import glob
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.errors import UsageError
from art_otel.store.commit import check_out, check_replaceable, commit, locked
from art_otel.store.files import SUFFIX, DataFile
from art_otel.store.part_writer import FILE_LIMITS, FileLimits, PartWriter, write_part
from art_otel.store.read import groups_in, open_parquet
from art_otel.store.report import Manifest, Part
from art_otel.trajectories import Trajectory

_STAGING: Final = ".art-otel-staging-"

SMALL: Final = 8 << 20
"""Bytes of a part that is better put together with others."""

_TARGET: Final = 4 * SMALL
"""Bytes that parts have together, about, before they are written anew."""

Moved: TypeAlias = dict[str, dict[int, tuple[str, int]]]
"""Where rows went: by the name of their part and their number in it, those of now."""


class WriteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: how many trajectories, into which files (paths or URLs), in order."""

    trajectories: int
    files: tuple[str, ...]


def write_trajectories(
    trajectories: Iterable[Trajectory], path: str | Path, *, limits: FileLimits = FILE_LIMITS
) -> WriteSummary:
    """Write trajectories into a folder or URL as `part-*.parquet`, or into one `*.parquet` file.

    A dataset that was there before is replaced when everything is written; what art-otel did not write never is. A list
    or tuple is written in `Trajectory.order`, an iterator as it comes, with memory of about one row group. Raises
    UsageError for what is no trajectory, and where the path cannot be a dataset, holds files of others or is just being
    written to; StoreError for a trajectory that no column can hold; StorageError and OSError for what the disk or store
    refuses.
    """
    checked = _checked(trajectories)
    if isinstance(trajectories, Sequence):
        checked = iter(sorted(checked, key=attrgetter("order")))
    out = str(path)
    if out.partition("?")[0].endswith(SUFFIX) and not Path(out).is_dir():
        return _write_file(checked, out, limits)
    check_out(out)
    with locked(out), _staging(out) as folder:
        staged = list(_parts(checked, folder, limits))
        files = commit(out, uuid4().hex, staged)
    return WriteSummary(trajectories=sum(part.rows for _, part in staged), files=files)


def _checked(trajectories: object) -> Iterator[Trajectory]:
    for one in cast(Iterable[object], trajectories) if isinstance(trajectories, Iterable) else [trajectories]:
        if not isinstance(one, Trajectory):
            raise UsageError(f"{one!r:.100}: give trajectories, as read_trajectories has them, or a group's own")
        yield one


def _write_file(trajectories: Iterator[Trajectory], out: str, limits: FileLimits) -> WriteSummary:
    if storage.is_url(out):
        raise UsageError(f"{storage.shown(out)}: in a store a dataset is a folder; leave {SUFFIX} out")
    path = Path(out)
    check_replaceable([path])
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}.tmp"):
        abandoned.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    part = write_part(trajectories, temporary, 0, limits)
    try:
        check_replaceable([path])  # again: much time may have passed
        storage.move(str(temporary), out)
        storage.sync_folder(str(path.parent))
    finally:
        temporary.unlink(missing_ok=True)
    return WriteSummary(trajectories=part.rows, files=(out,))


@contextmanager
def _staging(out: str) -> Generator[Path]:
    """A folder for files that are being written: beside those that they become, or on this machine for a store."""
    if not storage.is_url(out):
        for abandoned in Path(out).glob(f"{_STAGING}*"):
            shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=None if storage.is_url(out) else out) as folder:
        yield Path(folder)


def _parts(trajectories: Iterator[Trajectory], folder: Path, limits: FileLimits) -> Iterator[tuple[str, Part]]:
    """Write as many parts as the limits ask for, at least one."""
    following = next(trajectories, None)
    number = 0
    while following is not None or not number:
        path = folder / f"{number}{SUFFIX}"
        with PartWriter(path, limits) as writer:
            while following is not None and not writer.full:
                writer.add(following)
                following = next(trajectories, None)
            yield str(path), writer.finish(number)
        number += 1


class Rewritten(NamedTuple):
    """New parts, each with the path where it lies, and where the rows of the old ones are now."""

    staged: list[tuple[str, Part]]
    moved: Moved


def parts_to_rewrite(manifest: Manifest) -> list[Part]:
    """The parts that hold rows that no longer count, and small ones if there are several."""
    small = [part for part in manifest.parts if part.bytes < SMALL]
    chosen = {part.name for part in small if len(small) > 1} | manifest.superseded.keys()
    return [part for part in manifest.parts if part.name in chosen]


def rewrite_parts(
    out: str, parts: Sequence[Part], superseded: Mapping[str, tuple[int, ...]], number: int, scratch: Path
) -> Rewritten:
    """Write these parts of a dataset anew, the first as part `number`, into a folder of this machine."""
    rewritten = Rewritten([], {})
    for batch in _batches(parts):
        path = scratch / f"rewritten-{number}"
        with PartWriter(path) as writer:
            copied_rows = {part.name: _copy(out, part, superseded.get(part.name, ()), writer) for part in batch}
            part = writer.finish(number)
        for name, rows in copied_rows.items():
            rewritten.moved[name] = {row: (part.name, new_row) for row, new_row in rows.items()}
        rewritten.staged.append((str(path), part))
        number += 1
    return rewritten


def _copy(out: str, part: Part, superseded: tuple[int, ...], writer: PartWriter) -> dict[int, int]:
    """Copy the rows that count; return the new row of each."""
    file = DataFile(location=storage.join(out, part.name), dataset=out, source=out, superseded=superseded)
    first = writer.rows
    with open_parquet(file.location) as parquet:
        for group in groups_in(file, parquet):
            writer.add_rows(group.read(parquet))
    left_out = frozenset(superseded)
    return {row: first + offset for offset, row in enumerate(row for row in range(part.rows) if row not in left_out)}


def _batches(parts: Sequence[Part]) -> Iterator[list[Part]]:
    batch: list[Part] = []
    for part in parts:
        batch.append(part)
        if sum(one.bytes for one in batch) >= _TARGET:
            yield batch
            batch = []
    if batch:
        yield batch
