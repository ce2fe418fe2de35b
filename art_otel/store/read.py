"""Reading: the files of a dataset to trajectories.

Invariant: what comes out equals what was written, or a StoreError names the file and what is wrong with it.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import glob
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import StoreError, UsageError
from art_otel.store.dataset import SUFFIX, is_between_datasets
from art_otel.store.rows import Row, restore_trajectory
from art_otel.store.schema import CALL, FIRST_EDITION_KEY, PROMPT, ROW, SCHEMA_VERSION, TURN, VERSION_KEY
from art_otel.trajectories import Trajectory

_DERIVED: Final = frozenset({"group_index", "group_metadata", "group_metrics", "group_logs", "messages"})
"""Columns for ART's reader only, which follow from other columns."""

_MESSAGES: Final = frozenset({"edits", "messages", "message"})
_TOKENS: Final = frozenset({"context_token_ids", "token_ids", "logprobs"})


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a trajectory to read; what is left out is None, and () for edits.

    `prompts` are the `input_messages` and `prompt_token_ids` of calls: `Trajectory.prompts` holds the same in less, for
    whole prompts grow with the square of a conversation's length. `messages` are all messages, `tokens` all ids and
    logprobs. Whole prompts, and the choices of calls, are read only with both.
    """

    prompts: bool = True
    messages: bool = True
    tokens: bool = True

    @property
    def columns(self) -> list[str]:
        """Parquet's paths of the columns that hold them."""
        without = (frozenset() if self.messages else _MESSAGES) | (frozenset() if self.tokens else _TOKENS)
        plain = [name for name in ROW.fields if name not in _DERIVED | {"calls", "turns"}]
        nested = {"calls": [*CALL.fields], "turns": [*TURN.fields]}
        nested["calls"].remove("prompt")
        nested["calls"] += [f"prompt.{name}" for name in PROMPT.fields]
        paths = [f"{column}.list.element.{name}" for column, names in nested.items() for name in names]
        return plain + [path for path in paths if path.rpartition(".")[2] not in without]


_ALL: Final = Wanted()
_KEY: Final = ("rollout_id", "attempt", "trace_id", "complete")

_ANY_ID: Final = (b"", b"\xff")
"""Bounds of every id: no text's UTF-8 is behind b"\\xff"."""


class RowGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file that is read at once: `rows` trajectories.

    `id_bounds` are the least and the greatest that a rollout id of them can be, in UTF-8 (bytes are in the order of the
    texts). They follow from the file's statistics, which may be missing or, where ids are long, wider than the ids.
    """

    file: Path
    index: int
    rows: int
    id_bounds: tuple[bytes, bytes] = _ANY_ID


class Key(NamedTuple):
    """What tells recordings of rollouts apart, `Trajectory.order`, and whether this one is complete."""

    order: tuple[str, int, str]
    complete: bool


def read_trajectories(
    path: str | Path | Iterable[str | Path], *, prompts: bool = True, messages: bool = True, tokens: bool = True
) -> Iterator[Trajectory]:
    """Read the trajectories of a file, of a folder's `*.parquet` or of all that a glob matches, in the order of names.

    Of several paths those of the first come first. A rollout that stands in several files is given as often.
    Memory is that of one row group. Whole prompts repeat all that was said before, so they grow with the square of a
    conversation's length: `prompts=False` leaves `input_messages` and `prompt_token_ids` of the calls None, where
    `Trajectory.prompts` and `turns` are enough. Without `messages` or `tokens` those of prompts and turns are None
    (edits are empty), and so are the calls' whole prompts and choices. Raises UsageError for a file that is given
    twice; StoreError, for a path without files at once, else while iterating.
    """
    files = _files_of(path)
    wanted = Wanted(prompts=prompts, messages=messages, tokens=tokens)
    return (trajectory for file in files for trajectory in _read_file(file, wanted))


def row_groups(path: str | Path) -> tuple[RowGroup, ...]:
    """The row groups of a path as `read_trajectories` takes it, in order. Raises StoreError."""
    return tuple(group for file in _find_files(path) for group in _groups_of(file))


def read_row_group(group: RowGroup, wanted: Wanted = _ALL, rows: Sequence[int] | None = None) -> Iterator[Trajectory]:
    """Read the trajectories of one row group, or only those of these rows, which costs less. Raises StoreError."""
    with _open(group.file) as parquet:
        for row in _read_rows(parquet, group.index, wanted, rows):
            yield _restore(group.file, row, wanted)


def read_keys(groups: Iterable[RowGroup]) -> Iterator[list[Key]]:
    """Read the keys of each row group's trajectories, which is little of a file. Raises StoreError."""
    for file, of_file in groupby(groups, key=attrgetter("file")):
        with _open(file) as parquet:
            for group in of_file:
                table = parquet.read_row_group(group.index, columns=list(_KEY))
                if table.num_rows != group.rows:
                    raise StoreError(f"{file}: was written anew while it was read; start again")
                rows = zip(*(table.column(name).to_pylist() for name in _KEY), strict=True)
                yield [Key((one, attempt or 0, trace), bool(complete)) for one, attempt, trace, complete in rows]


def _files_of(paths: object) -> list[Path]:
    """The files of a path or of several, in order. Raises UsageError for what is none and for a file given twice."""
    several = cast(Iterable[object], paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    files: list[Path] = []
    known: set[Path] = set()
    for path in several:
        if not isinstance(path, str | Path):
            raise UsageError(f"{path!r:.100}: give a path of trajectory files, or several")
        found = _find_files(path)
        places = {file.resolve() for file in found}
        if twice := places & known:
            raise UsageError(f"{path}: {min(twice)} is given twice, so that all in it would be read twice")
        files += found
        known |= places
    return files


def _find_files(path: str | Path) -> list[Path]:
    if path == "":  # Path takes it for the current folder
        raise UsageError("an empty path names no dataset; is a variable unset? The current folder is named .")
    found = Path(path)
    if found.is_file():
        return [found]
    if found.is_dir():
        matches, problem = [found], f"no *{SUFFIX} in this folder; give the folder that was written to"
    else:
        matches = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207 # absolute patterns too
        problem = f"no such file or folder, and no file or folder with *{SUFFIX} matches it as a glob"
    folders = {match for match in matches if match.is_dir()}
    files = {file for folder in folders for file in folder.glob(f"*{SUFFIX}")}.union(set(matches) - folders)
    if not files:
        raise StoreError(f"{path}: {problem}")
    for folder in sorted(folders | {file.parent for file in files}):
        if is_between_datasets(folder):
            raise StoreError(
                f"{folder}: its files are of two datasets, because they are just being replaced or because that was "
                "killed; read again in a moment, or write the dataset again"
            )
    return sorted(files)


@contextmanager
def _open(file: Path) -> Generator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(file) as parquet:
            _check(file, parquet.schema_arrow)
            yield parquet
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise StoreError(f"{file}: cannot be read as Parquet: {error}") from error


def _groups_of(file: Path) -> list[RowGroup]:
    with _open(file) as parquet:
        paths = (parquet.schema.column(number).path for number in range(len(parquet.schema)))
        column = next(number for number, path in enumerate(paths) if path == "rollout_id")
        found = [parquet.metadata.row_group(index) for index in range(parquet.num_row_groups)]
        return [
            RowGroup(file=file, index=index, rows=group.num_rows, id_bounds=_bounds(group.column(column).statistics))
            for index, group in enumerate(found)
        ]


def _bounds(statistics: pq.Statistics | None) -> tuple[bytes, bytes]:
    """The least and the greatest value of a text column, as far as its statistics tell."""
    if statistics is None or not statistics.has_min_max:
        return _ANY_ID
    return statistics.min_raw, statistics.max_raw


def _read_file(file: Path, wanted: Wanted) -> Iterator[Trajectory]:
    with _open(file) as parquet:
        for index in range(parquet.num_row_groups):
            for row in _read_rows(parquet, index, wanted):
                yield _restore(file, row, wanted)


def _check(file: Path, schema: pa.Schema) -> None:
    metadata = schema.metadata or {}
    version = metadata.get(VERSION_KEY, b"").decode(errors="replace")
    if FIRST_EDITION_KEY in metadata:
        raise StoreError(
            f"{file}: is of the first edition of art-otel's format, which this art-otel does not read; convert the "
            "sources again"
        )
    if not version.isdecimal():
        advice = _advice_on_rewritten(schema)
        raise StoreError(f"{file}: not a trajectory file: its metadata has no {VERSION_KEY.decode()}{advice}")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"{file}: has schema version {version}, this art-otel reads up to {SCHEMA_VERSION}; upgrade it"
        )
    expected = pa.struct([field for field in ROW.type if field.name not in _DERIVED])
    for problem in _problems(expected, pa.struct(schema)):
        raise StoreError(f"{file}: {problem}; write it again from its source")


def _advice_on_rewritten(schema: pa.Schema) -> str:
    """What to do where the columns are those of a dataset: polars, pandas and others keep no metadata."""
    if not {"rollout_id", "trace_id", "turns"} <= set(schema.names):
        return ""
    return (
        "; another program wrote a dataset anew: choose trajectories with art_otel.read_trajectories and write them"
        " with art_otel.write_trajectories"
    )


def _problems(expected: pa.DataType, actual: pa.DataType, path: str = "") -> Iterator[str]:
    """What the actual type lacks. Further columns and fields are ignored."""
    if pa.types.is_struct(expected) and pa.types.is_struct(actual):
        for field in expected:
            name = f"{path}.{field.name}" if path else field.name
            index = actual.get_field_index(field.name)
            if index >= 0:
                yield from _problems(field.type, actual.field(index).type, name)
            else:
                yield f"column {name} is missing"
    elif pa.types.is_list(expected) and pa.types.is_list(actual):
        yield from _problems(expected.value_type, actual.value_type, path)
    elif expected != actual:
        yield f"column {path} is {actual} instead of {expected}"


def _read_rows(parquet: pq.ParquetFile, row_group: int, wanted: Wanted, rows: Sequence[int] | None = None) -> list[Row]:
    table = parquet.read_row_group(row_group, columns=wanted.columns)
    if rows is not None:
        table = table.take(pa.array(rows, pa.int64()))
    columns = {name: table.column(name).combine_chunks() for name in ROW.fields if name in table.column_names}
    return ROW.assemble(columns.get(name, pa.nulls(table.num_rows, codec.type)) for name, codec in ROW.fields.items())


def _restore(file: Path, row: Row, wanted: Wanted) -> Trajectory:
    try:
        whole = wanted.messages and wanted.tokens
        return restore_trajectory(row, prompts=wanted.prompts and whole, choices=whole)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # values out of place
        raise StoreError(f"{file}: rollout {row.rollout_id!r} is not what a trajectory can be: {error}") from error
