"""Snapshot: the data that is looked at: datasets, runs and spools, as they were at one moment.

Invariant: what is read through a snapshot is of its generation, or ReplacedError is raised: never a mixture of two. Two
equal marks of a source mean the same files. A source is named by its folder's or file's own name, with that of the
folder above where several have one name; its path is told to nobody.
"""

import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from art_otel import storage
from art_otel.errors import ArtOtelError, StoreError, UsageError
from art_otel.store import REPORT_NAME, SUFFIX, Combined, Wanted, combine, read_row_group
from art_otel.store.files import DataFile, find_files
from art_otel.trajectories import Trajectory
from art_otel.viewer.addresses import NotFoundError, ReplacedError, TrajectoryKey
from art_otel.viewer.judging import Judging
from art_otel.viewer.labels import Labels
from art_otel.viewer.outlines import Outlines, Search, ValueColumn, ViewedFile, read_outlines

_SPOOLS: Final = (".", "spool", "received", "spool/received")
"""Where, below a folder, the runs of a spool may lie."""

_STEP: Final = re.compile(r"\d+")

_PATIENCE: Final = 5
"""A spool is converted again after so many times of what its conversion took."""

_WHOLE: Final = Wanted()

Mark = tuple[object, ...]
"""A value that stays equal while the files of a source stay the same."""


class ViewedSource(Protocol):
    """Something that trajectories are read from."""

    @property
    def path(self) -> str:
        """The path or URL as the user wrote it."""
        ...

    @property
    def name(self) -> str:
        """The name that the page shows."""
        ...

    @property
    def run(self) -> Path | None:
        """The folder of the training run; None where the source is no run."""
        ...

    def mark(self) -> Mark:
        """A value that stays equal while the files stay the same."""
        ...

    def files(self, number: int) -> list[ViewedFile]:
        """List the trajectory files; `number` is the source's number. Raises StoreError."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The outlines of all trajectories, with judgements and searches, which are made when they are asked for."""

    generation: str
    marks: tuple[Mark, ...]
    sources: Sequence[ViewedSource]
    files: Sequence[ViewedFile]
    combined: Combined
    outlines: Outlines
    judging: Judging
    search: Search
    labels: Labels
    orders: dict[tuple[str, str], "np.ndarray[tuple[int], np.dtype[np.int64]]"] = field(
        default_factory=dict["tuple[str, str]", "np.ndarray[tuple[int], np.dtype[np.int64]]"]
    )

    texts: dict[int, dict[str, Any]] = field(default_factory=dict[int, "dict[str, Any]"])
    """What rows were asked and said last, as far as it was read."""

    held: dict[int, Trajectory] = field(default_factory=dict[int, Trajectory])
    """Trajectories that are kept whole, by their rows."""

    @property
    def running(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Mark the rollouts of live sources that have not ended yet. Shape: (rows,)."""
        is_live = np.array([*(isinstance(source, ViewedSpool) for source in self.sources), False])
        return is_live[self.outlines.sources] & self.outlines.equal("status", "unfinished")

    def row_of(self, key: TrajectoryKey) -> int:
        """The row of a trajectory. Raises NotFoundError."""
        outlines = self.outlines
        matches = outlines.equal("rollout_id", key.rollout_id) & outlines.equal("source", key.source)
        matches &= outlines.equal("attempt", key.attempt)
        rows = np.flatnonzero(matches)
        if not len(rows):
            raise NotFoundError(f"no rollout {key.rollout_id!r:.200} in this data")
        return int(rows[-1])

    def read(self, rows: Sequence[int], wanted: Wanted = _WHOLE) -> list[Trajectory]:
        """Read the trajectories of these rows, in their order. Raises ReplacedError and StoreError."""
        by_row = {row: self.held[row] for row in rows if row in self.held} | dict(
            self._read(sorted(set(rows) - self.held.keys()), wanted)
        )
        return [by_row[row] for row in rows]

    def narrowed(self, rows: Sequence[int]) -> "Snapshot":
        """The snapshot of these rows alone, in the order of the data; it is judged when that is waited for.

        Raises StoreError.
        """
        wanted = np.zeros(len(self.outlines), np.bool_)
        wanted[list(rows)] = True
        if wanted.all():
            return self
        by_file = zip(self.files, np.split(wanted, self.outlines.file_starts[1:-1]), strict=True)
        files = [_without_others(file, of_file) for file, of_file in by_file if of_file.any()]
        combined = Combined(files=[file.data for file in files])
        outlines = read_outlines(files)
        # What a task is depends on all rows.
        vars(outlines)["tasks"] = ValueColumn(self.outlines.tasks.codes[wanted], self.outlines.tasks.names)
        return replace(
            self,
            files=files,
            combined=combined,
            outlines=outlines,
            judging=Judging(combined, at_once=False, part=(self.judging, wanted)),
            search=Search(outlines),
            orders={},
            texts={},
            held={},
        )

    def hold(self, rows: Iterable[int]) -> None:
        """Read these trajectories whole and keep them: a row group is read at once, however many of it are asked for.

        Raises ReplacedError and StoreError.
        """
        self.held.update(self._read(sorted(set(rows) - self.held.keys()), _WHOLE))

    def _read(self, rows: Sequence[int], wanted: Wanted) -> Iterator[tuple[int, Trajectory]]:
        outlines = self.outlines
        try:
            for group, of_group in groupby(
                rows, key=lambda row: int(np.searchsorted(outlines.starts, row, "right")) - 1
            ):
                members = list(of_group)
                start = int(outlines.starts[group])
                trajectories = read_row_group(outlines.groups[group], wanted, [row - start for row in members])
                yield from zip(members, trajectories, strict=True)
        except (ArtOtelError, IndexError) as error:
            self.check()
            raise error if isinstance(error, ArtOtelError) else StoreError("the file has fewer rows") from error
        self.check()

    def check(self) -> None:
        """Raise ReplacedError where the files are others now."""
        if tuple(source.mark() for source in self.sources) != self.marks:
            raise ReplacedError("the dataset was replaced")


class ViewedData:
    """The data that is looked at, with a snapshot that is taken anew when the files change.

    With `labels` notes and labels may be written beside datasets in folders; `unlabeled` names the other sources.
    What would train is judged at once, or else when somebody waits for it.
    """

    def __init__(self, paths: Sequence[str], *, labels: bool = False, judge_at_once: bool = True) -> None:
        self._sources = find_sources(paths)
        self._judge_at_once = judge_at_once
        folders = [Path(source.path) if isinstance(source, Dataset) else None for source in self._sources]
        local = [folder if folder is not None and folder.is_dir() else None for folder in folders]
        self.unlabeled = [source.name for source, folder in zip(self._sources, local, strict=True) if folder is None]
        if labels and len(self.unlabeled) == len(local):
            raise UsageError("--labels: labels are kept beside a dataset; give the folder of one on this machine")
        self._labels = Labels(local, writable=labels)
        self._lock = threading.Lock()
        self._snapshot = self._take()

    @property
    def snapshot(self) -> Snapshot:
        """The data as it is now, read again where it changed. Raises StoreError."""
        with self._lock:
            if tuple(source.mark() for source in self._sources) != self._snapshot.marks:
                self._snapshot.judging.close()
                self._snapshot = self._take()
            return self._snapshot

    def without_paths(self, text: str) -> str:
        """Replace the paths in a text by the names of their files and folders."""
        groups = self._snapshot.outlines.groups
        locations = {group.file for group in groups} | {group.dataset for group in groups}
        locations |= {source.path for source in self._sources}
        paths = {Path(location) for location in locations if not storage.is_url(location)}
        paths |= {path.parent for path in paths if path.parent.name}
        whole = {str(each): path.resolve().name for path in paths for each in (path, path.resolve())}
        for url in filter(storage.is_url, locations):
            whole |= {shown: shown.rpartition("/")[2] for shown in (url, storage.shown(url))}
        for path in sorted(whole, key=len, reverse=True):
            text = text.replace(path, whole[path])
        return text

    def close(self) -> None:
        """Stop the judging that still runs."""
        self._snapshot.judging.close()

    def _take(self) -> Snapshot:
        files = [file for number, source in enumerate(self._sources) for file in source.files(number)]
        marks = tuple(source.mark() for source in self._sources)
        combined = combine([file.data for file in files])
        files = [replace(file, data=data) for file, data in zip(files, combined.files, strict=True)]
        outlines = read_outlines(files)
        return Snapshot(
            generation=blake2b(repr(marks).encode(), digest_size=8).hexdigest(),
            marks=marks,
            sources=self._sources,
            files=files,
            combined=combined,
            outlines=outlines,
            judging=Judging(combined, at_once=self._judge_at_once),
            search=Search(outlines),
            labels=self._labels,
        )


def _without_others(file: ViewedFile, wanted: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> ViewedFile:
    """The file with its wanted rows alone: all others of those that count are superseded, too."""
    superseded = np.array(file.data.superseded, np.int64)
    current = np.delete(np.arange(len(wanted) + len(superseded)), superseded)
    rows = np.sort(np.concatenate([superseded, current[~wanted]]))
    return replace(file, data=msgspec.structs.replace(file.data, superseded=tuple(rows.tolist())))


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder, file, glob or URL of trajectories."""

    path: str
    name: str
    run: Path | None = None

    def mark(self) -> Mark:
        """The version of the manifest where there is one, else of the files."""
        report = Path(self.path) / REPORT_NAME
        if storage.is_url(self.path):
            return (self.path, self._stored_version())
        return _marks([report] if report.exists() else [Path(file.location) for file in find_files(self.path)])

    def _stored_version(self) -> object:
        """The version of the manifest where there is one, else of the file, or the names and sizes of all files."""
        version = storage.version_of(storage.join(self.path, REPORT_NAME))
        if version is None and self.path.partition("?")[0].endswith(SUFFIX):
            return storage.version_of(self.path)
        return version or tuple(storage.list_folder(self.path).items())

    def files(self, number: int) -> list[ViewedFile]:
        """List the files that the manifest names; all files where there is none."""
        return [ViewedFile(data=file, source=number) for file in find_files(self.path)]


@dataclass(frozen=True, slots=True)
class ViewedRun:
    """The folder of a training run, ours or ART's."""

    path: str
    name: str

    @property
    def run(self) -> Path:
        """The folder of this run."""
        return Path(self.path)

    def mark(self) -> Mark:
        """The versions of the history and of the trajectory files."""
        return _marks([self.run / "history.jsonl", *self._parquet()])

    def files(self, number: int) -> list[ViewedFile]:
        """List the files of our format: ART's own writer leaves out what makes a trajectory."""
        return [
            ViewedFile(
                data=DataFile(location=str(file), dataset=str(file), source=self.path),
                source=number,
                step=_step(file),
                split=_split(file, self.run),
            )
            for file in self._parquet()
            if _is_ours(file)
        ]

    def _parquet(self) -> list[Path]:
        return sorted((self.run / "trajectories").rglob(f"*{SUFFIX}"))


@dataclass(slots=True)
class ViewedSpool:
    """Spans that live apps or `art-otel serve` write: they are converted, anew when more has come."""

    path: str
    name: str
    run: Path | None = None
    _out: "tempfile.TemporaryDirectory[str]" = field(default_factory=lambda: tempfile.TemporaryDirectory("art-otel"))
    _converted: Mark | None = None
    _not_before: float = 0.0

    def mark(self) -> Mark:
        """The versions of the dumps, which are looked at again only after a pause."""
        if self._converted is None or time.monotonic() >= self._not_before:
            return _marks(_dumps(Path(self.path)))
        return self._converted

    def files(self, number: int) -> list[ViewedFile]:
        """Convert the dumps if they changed, and list the files of the dataset."""
        from art_otel.engines import Conversion, convert  # noqa: PLC0415 # datasets need no conversion

        mark, began = self.mark(), time.monotonic()
        if not mark:
            return []
        if mark != self._converted:
            convert(Conversion(sources=[str(dump) for dump in _dumps(Path(self.path))], out=self._out.name, workers=1))
            self._converted = mark
            self._not_before = time.monotonic() + 1 + _PATIENCE * (time.monotonic() - began)
        return Dataset(self._out.name, self.name).files(number)


def find_sources(paths: Iterable[str]) -> list[ViewedSource]:
    """Find what the paths hold. Raises UsageError and StoreError for a path that holds nothing to look at."""
    return _told_apart([source for path in paths for source in _sources_of(path)])


def _told_apart(sources: list["Dataset | ViewedRun | ViewedSpool"]) -> list[ViewedSource]:
    """Name sources of one name after the folder above, too, and after their number where that is one, too."""
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        names = [f"{_above(source.path)}/{source.name}" for source in sources]
    if len(set(names)) < len(names):
        names = [f"{name} {number}" for number, name in enumerate(names, 1)]
    return [replace(source, name=name) for source, name in zip(sources, names, strict=True)]


def _above(path: str) -> str:
    """The name of the folder above."""
    parts = storage.shown(path).rstrip("/").split("/") if storage.is_url(path) else Path(path).resolve().parts
    return parts[-2]


def _sources_of(path: str) -> Sequence[Dataset | ViewedRun | ViewedSpool]:
    if storage.is_url(path):
        find_files(path)  # says what is wrong
        return [Dataset(path, _name(path))]
    folder = Path(path)
    if not folder.is_dir():
        find_files(path)  # says what is wrong
        return [Dataset(path, folder.name)]
    if (folder / REPORT_NAME).exists() or any(folder.glob(f"*{SUFFIX}")):
        return [Dataset(path, folder.resolve().name)]
    if runs := list(_runs(folder)):
        return runs
    if _dumps(folder) or folder.name in _SPOOLS or (folder / "spool").is_dir():
        return [ViewedSpool(path, folder.resolve().name)]
    raise UsageError(f"{path}: contains no dataset, run or spool; `art-otel convert DUMP… --out DIR` makes one")


def _name(url: str) -> str:
    return storage.shown(url).rstrip("/").rpartition("/")[2]


def _runs(folder: Path) -> Iterator[ViewedRun]:
    """The runs in a run's folder, a project's, or one of projects."""
    for pattern in (".", "models/*", "*/models/*"):
        matches = [folder] if pattern == "." else sorted(folder.glob(pattern))
        for match in matches:
            if (match / "history.jsonl").is_file() or (match / "trajectories").is_dir():
                yield ViewedRun(str(match), match.resolve().name)


def _dumps(folder: Path) -> list[Path]:
    """The files of a spool: those of a run in a folder of its own, or of one run."""
    patterns = [f"{spool}/{run}*.otlp.jsonl" for spool in _SPOOLS for run in ("", "*/")]
    return sorted({file for pattern in patterns for file in folder.glob(pattern)})


def _marks(files: Iterable[Path]) -> Mark:
    marks: list[object] = []
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:
            marks.append((str(file), None))
        else:
            marks.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(marks)


def _is_ours(file: Path) -> bool:
    # pyarrow ships no types.
    from art_otel.store.read import (  # noqa: PLC0415 # runs only
        open_parquet,  # pyright: ignore[reportUnknownVariableType]
    )

    try:
        with open_parquet(str(file)):
            return True
    except StoreError:
        return False


def _step(file: Path) -> int | None:
    return int(file.stem) if _STEP.fullmatch(file.stem) else None


def _split(file: Path, run: Path) -> str | None:
    below = file.relative_to(run / "trajectories").parts
    return below[0] if len(below) > 1 else None
