"""Files: find the trajectory files of a path, and the files that may have the wanted rows.

Invariant: for a folder with a manifest, these are the parts that it names, in its order; a part that is missing or has
another size raises an error and is never skipped. Superseded rows of a part are left out, however the part was named. A
part that has no wanted rows by the manifest is not opened.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar, cast

import msgspec

from art_otel import storage
from art_otel.errors import StoreError, UsageError
from art_otel.store.report import REPORT_NAME, Manifest, Part, is_part_name, read_manifest
from art_otel.trajectories import GroupKey

SUFFIX: Final = ".parquet"

_ItemT = TypeVar("_ItemT", str, int)


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory file: its path or URL, and its dataset: the folder of a part, else the file itself.

    `source` is the folder of the file: files in one folder are of one run, also if several workers wrote them.
    `superseded` are its rows that are no longer valid, in order. `part` is its entry in the manifest. `group_ids` are
    new ids for groups whose id is also used by another source.
    """

    location: str
    dataset: str
    source: str
    superseded: tuple[int, ...] = ()
    part: Part | None = None
    group_ids: Mapping[GroupKey, str] = {}


def find_files(path: str | Path) -> list[DataFile]:
    """The files of a file, folder, glob or URL, in order. Raises StoreError if there is none."""
    location = str(path)
    if path == "":  # Path takes it for the current folder
        raise UsageError("an empty path is not a dataset; is a variable unset? The current folder is written .")
    if storage.is_url(location):
        is_file = location.partition("?")[0].endswith(SUFFIX)
        return [_named_file(location)] if is_file else _in_folder(location)
    if Path(path).is_file():
        return [_named_file(location)]
    if Path(path).is_dir():
        return _in_folder(location)
    matches = sorted(map(Path, glob.glob(location, recursive=True)))  # noqa: PTH207 # absolute patterns too
    files: dict[str, DataFile] = {}
    for match in matches:
        if match.is_dir():
            matched = _in_folder(str(match), may_be_empty=True)
        else:  # names with an underscore are no data for any reader of Parquet folders
            matched = [] if match.name.startswith("_") else [_named_file(str(match))]
        files |= {file.location: file for file in matched}
    if not files:
        raise StoreError(f"{path}: no such file or folder, and no file or folder with *{SUFFIX} matches it as a glob")
    return list(files.values())


def find_all_files(paths: object) -> list[DataFile]:
    """The files of one or several paths, in order. Raises UsageError for a value that is no path or a repeated file."""
    several = cast(Iterable[object], paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    files: dict[str, DataFile] = {}
    for path in several:
        if not isinstance(path, str | Path):
            raise UsageError(f"{path!r:.100}: give a path of trajectory files, or several")
        for file in find_files(path):
            identity = _resolved(file.location)
            if identity in files:
                raise UsageError(f"{path}: {identity} is given twice, so its rows would be read twice")
            files[identity] = file
    return list(files.values())


def _in_folder(folder: str, *, may_be_empty: bool = False) -> list[DataFile]:
    manifest = read_manifest(folder)  # first: a store keeps the parts that are replaced meanwhile
    sizes = storage.list_folder(folder)
    if manifest is not None:
        parts = list(_checked(folder, manifest, sizes))
        superseded = manifest.superseded
        return [_data_file(storage.join(folder, part.name), superseded.get(part.name, ()), part) for part in parts]
    if REPORT_NAME in sizes and any(map(is_part_name, sizes)):
        report = storage.shown(storage.join(folder, REPORT_NAME))
        raise StoreError(
            f"{report}: is corrupt, so it is unknown which parts count; remove the folder and write the dataset again"
        )
    names = [name for name in sizes if name.endswith(SUFFIX)]
    if not names and not may_be_empty:
        raise StoreError(
            f"{storage.shown(folder)}: no *{SUFFIX} in this folder; {_advice(folder, has_files=bool(sizes))}"
        )
    return [_data_file(storage.join(folder, name)) for name in names]


def _advice(folder: str, *, has_files: bool) -> str:
    convert = f"if it holds span dumps, convert them first: art-otel convert {storage.shown(folder)} --out DATASET"
    return convert if has_files else f"give the folder of a dataset; {convert}"


def _checked(folder: str, manifest: Manifest, sizes: dict[str, int]) -> Iterator[Part]:
    for part in manifest.parts:
        size = sizes.get(part.name)
        if size != part.bytes:
            problem = "is missing" if size is None else f"has {size} bytes instead of {part.bytes}"
            raise StoreError(
                f"{storage.shown(storage.join(folder, part.name))}: {problem}; the folder's _report.json names it, so"
                " write the dataset again"
            )
        yield part


def _named_file(location: str) -> DataFile:
    """A file that the user named, or that a glob found. For a part, the manifest beside it has its valid rows."""
    address, mark, query = location.partition("?") if storage.is_url(location) else (location, "", "")
    folder, _, name = address.rpartition("/" if storage.is_url(location) else os.sep)
    manifest = read_manifest(f"{folder or '.'}{mark}{query}") if is_part_name(name) else None
    superseded = () if manifest is None else manifest.superseded.get(name, ())
    return _data_file(location, superseded)


def _data_file(location: str, superseded: tuple[int, ...] = (), part: Part | None = None) -> DataFile:
    resolved = _resolved(location)
    folder, _, name = resolved.partition("?")[0].rpartition("/" if storage.is_url(location) else os.sep)
    return DataFile(
        location=location,
        dataset=folder if is_part_name(name) else resolved,
        source=folder,
        superseded=superseded,
        part=part,
    )


def _resolved(location: str) -> str:
    """A key of a file that is equal for all names of it."""
    return location if storage.is_url(location) else str(Path(location).resolve())


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The splits and training steps of the wanted rows. None means any; None among them means a row without one."""

    splits: frozenset[str | None] | None = None
    training_steps: frozenset[int | None] | None = None

    @classmethod
    def of(cls, split: object, training_step: object) -> Self:
        """Make it of one value or several, as callers write them. Raises UsageError."""
        return cls(splits=_chosen("split", split, str), training_steps=_chosen("training_step", training_step, int))

    @property
    def columns(self) -> list[str]:
        """The columns that decide whether a row is wanted; empty if all rows are."""
        chosen = {"split": self.splits, "training_step": self.training_steps}
        return [name for name, values in chosen.items() if values is not None]

    def among(self, rows: Sequence[Mapping[str, object]]) -> list[int]:
        """Which of these rows, given with `columns`, are wanted."""
        return [number for number, row in enumerate(rows) if self._has(row)]

    def why_none_of(self, part: Part) -> str | None:
        """Why none of a part's rows is wanted; None if some may be."""
        if self.splits is not None and self.splits.isdisjoint(part.splits):
            return "split"
        steps, bounds = self.training_steps, part.training_step
        if steps is None or None in steps:  # bounds do not tell whether some rows have no step
            return None
        if bounds is None or not any(step is not None and bounds[0] <= step <= bounds[1] for step in steps):
            return "training step"
        return None

    def _has(self, row: Mapping[str, object]) -> bool:
        return (self.splits is None or row["split"] in self.splits) and (
            self.training_steps is None or row["training_step"] in self.training_steps
        )


def _chosen(name: str, value: object, kind: type[_ItemT]) -> frozenset[_ItemT | None] | None:
    if value is None:
        return None
    several = cast(Iterable[object], value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    items = frozenset(several)
    if not all(item is None or (isinstance(item, kind) and not isinstance(item, bool)) for item in items):
        raise UsageError(f"{name}={value!r:.200}: give one value or several, each {kind.__name__} or None")
    return cast(frozenset[_ItemT | None], items)
