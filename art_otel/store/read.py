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
from art_otel.store.schema import ADDED_IN, ROW, SCHEMA_VERSION, TURN, VERSION_KEY, row_of
from art_otel.trajectories import Trajectory

_DERIVED: Final = frozenset({"group_metadata", "group_metrics", "group_logs", "messages"})
"""Columns for ART's reader only, which say nothing that other columns do not say."""

_MESSAGES: Final = frozenset({"edits", "messages", "message"})
_TOKENS: Final = frozenset({"context_token_ids", "token_ids", "logprobs"})


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a trajectory to read; what is left out is None, and () for edits.

    `prompts` are the `input_messages`, `choices` and `prompt_token_ids` of calls: turns say the same in less, for
    prompts grow with the square of a conversation's length. `messages` are all messages, `tokens` ids and logprobs.
    Prompts need both.
    """

    prompts: bool = True
    messages: bool = True
    tokens: bool = True

    @property
    def columns(self) -> list[str]:
        """Parquet's paths of the columns that hold them."""
        rest = [name for name in ROW.fields if name not in _DERIVED and name != "turns"]
        without = (frozenset() if self.messages else _MESSAGES) | (frozenset() if self.tokens else _TOKENS)
        leaves = [name for name in TURN.fields if name not in without]
        if not self.messages:
            leaves.append("edits.list.element.index")  # where there are edits, the context is the turn's own
        return rest + [f"turns.list.element.{name}" for name in leaves]


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
    Memory is that of one row group. Prompts repeat the turns before them, so they grow with the square of a
    conversation's length: `prompts=False` leaves `input_messages`, `choices` and `prompt_token_ids` of the calls
    None for who needs the turns only. Without `messages` or `tokens` those of the turns are None (edits are empty),
    and so are the prompts. Raises UsageError for a file that is given twice; StoreError, for a path without files at
    once, else while iterating.
    """
    files = _files_of(path)
    wanted = Wanted(prompts=prompts and messages and tokens, messages=messages, tokens=tokens)
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
    version = _version(schema)
    if not version.isdecimal():
        advice = _advice_on_rewritten(schema)
        raise StoreError(f"{file}: not a trajectory file: its metadata has no {VERSION_KEY.decode()}{advice}")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"{file}: has schema version {version}, this art-otel reads up to {SCHEMA_VERSION}; upgrade it"
        )
    later = frozenset(name for name, added in ADDED_IN.items() if added > int(version))
    expected = pa.struct([field for field in row_of(int(version)).type if field.name not in _DERIVED])
    for problem in _problems(expected, pa.struct(schema), later):
        raise StoreError(f"{file}: {problem}; write it again from its source")


def _version(schema: pa.Schema) -> str:
    return (schema.metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")


def _advice_on_rewritten(schema: pa.Schema) -> str:
    """What to do where the columns are those of a dataset: polars, pandas and others keep no metadata."""
    if not {"rollout_id", "trace_id", "turns"} <= set(schema.names):
        return ""
    return (
        "; another program wrote a dataset anew: choose trajectories with art_otel.read_trajectories and write them"
        " with art_otel.write_trajectories"
    )


def _problems(expected: pa.DataType, found: pa.DataType, later: frozenset[str], path: str = "") -> Iterator[str]:
    """What the found type lacks, but for fields that `later` versions added. Further columns and fields are ignored."""
    if pa.types.is_struct(expected) and pa.types.is_struct(found):
        for field in expected:
            name = f"{path}.{field.name}" if path else field.name
            index = found.get_field_index(field.name)
            if index >= 0:
                yield from _problems(field.type, found.field(index).type, later, name)
            elif name not in later:
                yield f"column {name} is missing"
    elif pa.types.is_list(expected) and pa.types.is_list(found):
        yield from _problems(expected.value_type, found.value_type, later, path)
    elif expected != found:
        yield f"column {path} is {found} instead of {expected}"


def _read_rows(parquet: pq.ParquetFile, row_group: int, wanted: Wanted, rows: Sequence[int] | None = None) -> list[Row]:
    table = parquet.read_row_group(row_group, columns=wanted.columns)
    if rows is not None:
        table = table.take(pa.array(rows, pa.int64()))
    row = row_of(int(_version(parquet.schema_arrow)))
    known = {name: table.column(name).combine_chunks() for name in row.fields if name in table.column_names}
    return row.assemble(known.get(name, pa.nulls(table.num_rows, codec.type)) for name, codec in row.fields.items())


def _restore(file: Path, row: Row, wanted: Wanted) -> Trajectory:
    try:
        return restore_trajectory(row, prompts=wanted.prompts, messages=wanted.messages)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # values out of place
        raise StoreError(f"{file}: rollout {row.rollout_id!r} is not what a trajectory can be: {error}") from error
