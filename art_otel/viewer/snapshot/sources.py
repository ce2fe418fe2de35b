"""Sources: what the paths hold that are looked at: datasets, runs and spools, and whether they changed.

Invariant: two equal marks of a source mean the same files; a source is named by its folder's or file's own name, and
its path is told to nobody.
"""

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from art_otel import storage
from art_otel.errors import StoreError, UsageError
from art_otel.store import REPORT_NAME, SUFFIX
from art_otel.store.files import DataFile, find_files

_SPOOLS: Final = (".", "spool", "received", "spool/received")
"""Where, below a folder, the runs of a spool may lie."""

_STEP: Final = re.compile(r"\d+")
_PATIENCE: Final = 5
"""A spool is converted again after so many times of what its conversion took."""

Mark = tuple[object, ...]
"""A value that stays equal while the files of a source stay the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewedFile:
    """A trajectory file of the source of this number. A run's files are of a step and a split."""

    data: DataFile
    source: int
    step: int | None = None
    split: str | None = None


class Source(Protocol):
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
class Run:
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
class Spool:
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


def find_sources(paths: Iterable[str]) -> list[Source]:
    """Find what the paths hold. Raises UsageError and StoreError for a path that holds nothing to look at."""
    return [source for path in paths for source in _sources_of(path)]


def _sources_of(path: str) -> Sequence[Source]:
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
        return [Spool(path, folder.resolve().name)]
    raise UsageError(f"{path}: holds no dataset, no run and no spool; `art-otel convert DUMP… --out DIR` makes one")


def _name(url: str) -> str:
    return storage.shown(url).rstrip("/").rpartition("/")[2]


def _runs(folder: Path) -> Iterator[Run]:
    """The runs in a run's folder, a project's, or one of projects."""
    for pattern in (".", "models/*", "*/models/*"):
        matches = [folder] if pattern == "." else sorted(folder.glob(pattern))
        for match in matches:
            if (match / "history.jsonl").is_file() or (match / "trajectories").is_dir():
                yield Run(str(match), match.resolve().name)


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
    from art_otel.store.read import open_parquet  # noqa: PLC0415 # runs only

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
