"""Reading: read trajectories from the files of a dataset.

Invariant: a read trajectory equals the written one, or a StoreError has the file and the problem. Superseded rows are
never read. A file must have our schema key and all our columns with their types; further columns and fields are
ignored.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from art_otel import storage
from art_otel.calls import TOKEN_FACTS
from art_otel.errors import StorageError, StoreError
from art_otel.store.files import DataFile, Rows, find_all_files, find_files
from art_otel.store.report import SCHEMA_VERSION, VERSION_KEY, Part
from art_otel.store.rows import Fields, restore_trajectory
from art_otel.store.schema import READ_ROW, TRACES_ROW, TURN, StructOf
from art_otel.trajectories import GroupKey, RolloutTrace, Trajectory

_MESSAGES: Final = frozenset({"message_nodes", "turns.list.element.message"})
_TOKENS: Final = frozenset({"token_nodes", "turns.list.element.token_ids", "turns.list.element.logprobs"})
_TOKEN_FACTS: Final = frozenset(TOKEN_FACTS)
_FOLLOWING: Final = frozenset(
    {"parent", "token_parent", "prompt_tokens", "sampled_tokens", "unscored_tokens", "zero_logprobs"}
)
"""Fields of turns that can be computed from the others."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of a trajectory to read. Parts that are left out are None.

    `messages` are all messages, `tokens` all ids and logprobs. `token_facts` names further facts of each token.
    """

    messages: bool = True
    tokens: bool = True
    token_facts: frozenset[str] = _TOKEN_FACTS

    @property
    def columns(self) -> list[str]:
        """The Parquet paths of the columns with these parts."""
        without = (frozenset() if self.messages else _MESSAGES) | (frozenset() if self.tokens else _TOKENS)
        facts = self.token_facts if self.tokens else frozenset()
        without |= {f"turns.list.element.{name}" for name in _FOLLOWING | (_TOKEN_FACTS - facts)}
        plain = [name for name in READ_ROW.names if name != "turns"]
        return [
            path for path in (*plain, *[f"turns.list.element.{name}" for name in TURN.names]) if path not in without
        ]


WHOLE: Final = Wanted()
_RESTORED_AT_ONCE: Final = 256
"""How many trajectories are in memory as rows of Python values, which take more memory than a row group in Arrow."""
_KEY: Final = ("rollout_id", "attempt", "trace_id")


class RowGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A row group of a file, which is read at once: `rows` trajectories.

    `file` is a path or URL; files of one dataset have the same `dataset`. `superseded` are rows of the row group that
    are left out. `part` is the file's entry in the manifest, `group_ids` are new ids for some of its groups.
    """

    file: str
    dataset: str
    index: int
    rows: int
    superseded: tuple[int, ...] = ()
    part: Part | None = None
    group_ids: Mapping[GroupKey, str] = {}

    def read(self, parquet: pq.ParquetFile, columns: list[str] | None = None) -> pa.Table:
        """Read columns (None: all) of these trajectories from the open file. Raises StoreError for another file."""
        # Threads would each keep memory, and decoding takes less time than making trajectories.
        table = parquet.read_row_group(self.index, columns=columns, use_threads=False)
        if table.num_rows != self.rows + len(self.superseded):
            raise StoreError(f"{storage.shown(self.file)}: was rewritten while it was read; start again")
        if not self.superseded:
            return table
        superseded = frozenset(self.superseded)
        return _take(table, [row for row in range(table.num_rows) if row not in superseded])


def read_trajectories(
    path: str | Path | Iterable[str | Path],
    *,
    split: str | Iterable[str | None] | None = None,
    training_step: int | Iterable[int | None] | None = None,
    messages: bool = True,
    tokens: bool = True,
) -> Iterator[Trajectory]:
    """Read the trajectories of a dataset: a folder or URL, a file, or all files that a glob matches.

        for trajectory in art_otel.read_trajectories("dataset", split="train"):
            print(trajectory.rollout_id, trajectory.reward)

    A dataset is read part by part, in the order of its `_report.json`. In other folders and globs, `*.parquet` are read
    in the order of names. Several paths are read one after another. If a rollout is in several files, it comes several
    times. Memory holds one row group. A file is opened when it is its turn. `split` and `training_step` select one or
    several (`range(10, 20)`); None among them selects trajectories without one. Files that have none of them, as the
    manifest says, are not opened.

    With `messages=False` or `tokens=False`, messages or tokens of prompts and turns are None, which takes less time.

    Raises UsageError for a file that is given twice. Raises StoreError: for a path without files at once, otherwise
    while iterating.
    """
    rows = Rows.of(split, training_step)
    files = [file for file in find_all_files(path) if file.part is None or rows.why_none_of(file.part) is None]
    wanted = Wanted(messages=messages, tokens=tokens)
    return (trajectory for file in files for trajectory in _read_file(file, wanted, rows))


def read_rollout_traces(path: str | Path | Iterable[str | Path]) -> Iterator[RolloutTrace]:
    """Read the rollout traces of a dataset that was converted with `--rollout-traces`.

    Paths and order are as for `read_trajectories`. The traces of a rollout are in the order of its calls. Memory holds
    one row group. Raises UsageError for a file that is given twice. Raises StoreError: for a path without files at
    once; otherwise while iterating, also for files without rollout traces.
    """
    files = find_all_files(path)
    return (trace for file in files for trace in _read_traces(file))


def row_groups(path: str | Path) -> tuple[RowGroup, ...]:
    """The row groups of a path (as for `read_trajectories`), in order. Raises StoreError.

    Files that a manifest names are not opened.
    """
    return tuple(group for file in find_files(path) for group in groups_of(file))


def read_row_group(group: RowGroup, wanted: Wanted = WHOLE, rows: Sequence[int] | None = None) -> Iterator[Trajectory]:
    """Read the trajectories of one row group, or only those of these rows, which costs less. Raises StoreError."""
    with open_parquet(group.file, _footer_of(group.file)) as parquet:
        yield from _read_group(group, parquet, wanted, rows)


def read_keys(groups: Iterable[RowGroup]) -> Iterator[list[tuple[str, int, str]]]:
    """Read `Trajectory.order` of each row group's trajectories, a small part of a file. Raises StoreError."""
    for file, of_file in groupby(groups, key=attrgetter("file")):
        with open_parquet(file) as parquet:
            for group in of_file:
                table = group.read(parquet, list(_KEY))
                rows = zip(*(table.column(name).to_pylist() for name in _KEY), strict=True)
                yield [(rollout_id, attempt or 0, trace_id) for rollout_id, attempt, trace_id in rows]


def groups_of(file: DataFile) -> list[RowGroup]:
    """The row groups of a file, which is not opened if a manifest names it. Raises StoreError."""
    if file.part is not None:
        return _split(file, file.part.group_rows)
    with open_parquet(file.location) as parquet:
        return groups_in(file, parquet)


def groups_in(file: DataFile, parquet: pq.ParquetFile) -> list[RowGroup]:
    """The row groups of a file that is open."""
    return _split(file, [parquet.metadata.row_group(index).num_rows for index in range(parquet.num_row_groups)])


def _split(file: DataFile, sizes: Iterable[int]) -> list[RowGroup]:
    groups: list[RowGroup] = []
    start = 0
    for index, size in enumerate(sizes):
        first, last = (bisect_left(file.superseded, row) for row in (start, start + size))
        superseded = tuple(row - start for row in file.superseded[first:last])
        groups.append(
            RowGroup(
                file=file.location,
                dataset=file.dataset,
                index=index,
                rows=size - len(superseded),
                superseded=superseded,
                part=file.part,
                group_ids=file.group_ids,
            )
        )
        start += size
    return groups


def _read_file(file: DataFile, wanted: Wanted, rows: Rows) -> Iterator[Trajectory]:
    with open_parquet(file.location) as parquet:
        for group in groups_in(file, parquet):
            chosen = rows.among(group.read(parquet, rows.columns).to_pylist()) if rows.columns else None
            if group.rows and (chosen is None or chosen):
                yield from _read_group(group, parquet, wanted, chosen)


def _read_group(
    group: RowGroup, parquet: pq.ParquetFile, wanted: Wanted, rows: Sequence[int] | None = None
) -> Iterator[Trajectory]:
    table = group.read(parquet, wanted.columns)
    table = table if rows is None else _take(table, rows)
    pa.default_memory_pool().release_unused()  # else the pool keeps what decoding took
    starts = range(0, len(table), _RESTORED_AT_ONCE)
    trajectories = (one for start in starts for one in _restore(group.file, table.slice(start, _RESTORED_AT_ONCE)))
    return (with_group_id(one, group.group_ids) for one in trajectories) if group.group_ids else trajectories


def _take(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    return table.take(pa.array(rows, pa.int64()))


def with_group_id(trajectory: Trajectory, group_ids: Mapping[GroupKey, str]) -> Trajectory:
    """The trajectory, with the new id of its group, if there is one."""
    key = trajectory.group_key
    return trajectory if key is None else replace(trajectory, group_id=group_ids.get(key, key.group_id))


def _restore(location: str, table: pa.Table) -> Iterator[Trajectory]:
    """Make the trajectories of a table's rows. Raises StoreError for a row that is no trajectory."""
    try:
        rows: list[Fields] = _assemble(READ_ROW, table)
    except msgspec.DecodeError as error:  # a text is no JSON
        if table.num_rows == 1:
            raise _misfit(location, table.column("rollout_id")[0].as_py(), error) from error
        for row in range(table.num_rows):  # find the one at fault
            yield from _restore(location, table.slice(row, 1))
        return
    for row in rows:
        try:
            yield restore_trajectory(row)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # values out of place
            raise _misfit(location, row["rollout_id"], error) from error


def _assemble(record: StructOf, table: pa.Table) -> list[Fields]:
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    return record.assemble(arrays, table.num_rows)


def _misfit(location: str, rollout_id: object, error: Exception) -> StoreError:
    return StoreError(f"{storage.shown(location)}: rollout {rollout_id!r} is not a valid trajectory: {error}")


def _read_traces(file: DataFile) -> Iterator[RolloutTrace]:
    with open_parquet(file.location) as parquet:
        present = [name for name in TRACES_ROW.names if name in parquet.schema_arrow.names]
        for group in groups_in(file, parquet):
            try:
                rows = _assemble(TRACES_ROW, group.read(parquet, present))
            except msgspec.DecodeError as error:  # a text is no JSON
                where = storage.shown(file.location)
                raise StoreError(f"{where}: its rollout traces cannot be read: {error}") from error
            for row in rows:
                if row["rollout_traces"] is None:
                    raise StoreError(
                        f"{storage.shown(file.location)}: rollout {row['rollout_id']!r} has no rollout traces;"
                        " convert its dumps with --rollout-traces, or use art_otel.rollout_traces(trajectory)"
                    )
                for trace in row["rollout_traces"]:
                    yield RolloutTrace(rollout_id=row["rollout_id"], **trace)


def _footer_of(location: str) -> pq.FileMetaData | None:
    """The footer of a local file, cached, because all its row groups need it and it is large."""
    version = None if storage.is_url(location) else storage.version_of(location)
    return None if version is None else _footer(location, version)


@lru_cache(maxsize=1)
def _footer(location: str, _version: tuple[object, ...]) -> pq.FileMetaData:
    with open_parquet(location) as parquet:
        return parquet.metadata


@contextmanager
def open_parquet(location: str, footer: pq.FileMetaData | None = None) -> Generator[pq.ParquetFile]:
    """Open and check the file of a path or URL. Raises StoreError, also for errors of reading within the block.

    A given `footer` is not read again.
    """
    try:
        with storage.open_file(location) as file, pq.ParquetFile(file, metadata=footer) as parquet:
            _check(storage.shown(location), parquet.schema_arrow)
            yield parquet
    except pa.ArrowInvalid as error:
        raise StoreError(
            f"{storage.shown(location)}: cannot be read as Parquet: {error}; if it is a span dump, convert it first:"
            " art-otel convert DUMP --out DATASET"
        ) from error
    except (OSError, UnicodeDecodeError, pa.ArrowException, StorageError) as error:
        raise StoreError(f"{storage.shown(location)}: cannot be read as Parquet: {error}") from error


def _check(name: str, schema: pa.Schema) -> None:
    metadata = schema.metadata or {}
    version = metadata.get(VERSION_KEY, b"").decode(errors="replace")
    if not version.isdecimal():
        advice = _advice_on_rewritten(schema)
        raise StoreError(f"{name}: not a trajectory file: its metadata has no {VERSION_KEY.decode()}{advice}")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(f"{name}: has schema version {version}, this art-otel reads {SCHEMA_VERSION}; upgrade it")
    if int(version) < SCHEMA_VERSION:
        raise StoreError(
            f"{name}: has schema version {version}, of an earlier art-otel; this one reads {SCHEMA_VERSION}: convert"
            " the dumps again"
        )
    for problem in _problems(READ_ROW.type, pa.struct(schema)):
        raise StoreError(f"{name}: {problem}; write it again from its source")


def _advice_on_rewritten(schema: pa.Schema) -> str:
    """Advice for a file that has our columns but not our metadata: polars, pandas and others drop it."""
    if not {"rollout_id", "trace_id", "turns"} <= set(schema.names):
        return ""
    return (
        "; another program rewrote a dataset: choose trajectories with art_otel.read_trajectories and write them"
        " with art_otel.write_trajectories"
    )


def _problems(expected: pa.DataType, actual: pa.DataType, path: str = "") -> Iterator[str]:
    """The columns and fields that a file lacks, or has with another type."""
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
