"""Writing: write trajectories to a dataset or to one file.

Invariant: an earlier dataset or file is replaced only when everything is written, and only if art-otel wrote it.
"""

import glob
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Final, cast
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.errors import UsageError
from art_otel.store.commit import check_out, check_replaceable, commit, locked
from art_otel.store.files import SUFFIX
from art_otel.store.part_writer import FILE_LIMITS, FileLimits, PartWriter, write_part
from art_otel.store.report import Part
from art_otel.trajectories import Trajectory, with_later_rewards

_STAGING: Final = ".art-otel-staging-"


class WriteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The number of written trajectories, and the files (paths or URLs), in order."""

    trajectories: int
    files: tuple[str, ...]


def write_trajectories(
    trajectories: Iterable[Trajectory], path: str | Path, *, limits: FileLimits = FILE_LIMITS
) -> WriteSummary:
    """Write trajectories into a folder or URL as `part-*.parquet`, or into one `*.parquet` file.

    An earlier dataset is replaced when everything is written. A file that art-otel did not write is never replaced. A
    list or tuple is written in `Trajectory.order`. An iterator is written in its own order, with memory of about one
    row group. Raises UsageError for a value that is not a trajectory, and for a path that cannot be a dataset, has
    other files, or is being written to by another process. Raises StoreError for a trajectory that no column can hold.
    Raises StorageError and OSError if the disk or store refuses.
    """
    checked = _checked(trajectories)
    if isinstance(trajectories, Sequence):
        checked = iter(sorted(checked, key=attrgetter("order")))
    out = str(path)
    if out.partition("?")[0].endswith(SUFFIX) and not Path(out).is_dir():
        return _write_file(checked, out, limits)
    check_out(out)
    with locked(out), staging(out) as folder:
        staged = list(_parts(checked, folder, limits))
        files = commit(out, staged)
    return WriteSummary(trajectories=sum(part.rows for _, part in staged), files=files)


def _checked(trajectories: object) -> Iterator[Trajectory]:
    for one in cast(Iterable[object], trajectories) if isinstance(trajectories, Iterable) else [trajectories]:
        if not isinstance(one, Trajectory):
            raise UsageError(f"{one!r:.100}: give trajectories, such as read_trajectories returns, or a group of them")
        yield with_later_rewards(one)  # pyright: ignore[reportUnknownArgumentType] # of any result


def _write_file(trajectories: Iterator[Trajectory], out: str, limits: FileLimits) -> WriteSummary:
    if storage.is_url(out):
        raise UsageError(f"{storage.shown(out)}: in an object store, a dataset is a folder; leave {SUFFIX} out")
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
def staging(out: str) -> Generator[Path]:
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
