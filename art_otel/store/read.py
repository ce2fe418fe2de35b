"""Reading: the files of a dataset to trajectories.

Invariant: what comes out equals what was written, or a StoreError names the file and what is wrong with it.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import StoreError
from art_otel.store.dataset import SUFFIX
from art_otel.store.rows import Row, restore_trajectory
from art_otel.store.schema import ROW, SCHEMA_VERSION, VERSION_KEY
from art_otel.trajectories.trajectory import Trajectory

_DERIVED: Final = frozenset({"group_metadata", "group_metrics", "group_logs", "messages"})
"""Columns for ART's reader only, which say nothing that other columns do not say."""


def read_trajectories(path: str | Path, *, prompts: bool = True) -> Iterator[Trajectory]:
    """Read the trajectories of a file, of a folder's `*.parquet` or of a glob's files in the order of their names.

    Memory is that of one row group. Prompts repeat the turns before them, so they grow with the square of a
    conversation's length: `prompts=False` leaves `input_messages`, `choices` and `prompt_token_ids` of the calls
    None for who needs the turns only. Raises StoreError, for a path without files at once, else while iterating.
    """
    files = _find_files(path)
    return (trajectory for file in files for trajectory in _read_file(file, prompts=prompts))


def _find_files(path: str | Path) -> list[Path]:
    found = Path(path)
    if found.is_file():
        return [found]
    if found.is_dir():
        files = sorted(found.glob(f"*{SUFFIX}"))
        if not files:
            raise StoreError(f"{path}: no *{SUFFIX} in this folder; give the folder that was written to")
        return files
    files = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 # absolute patterns too
    if not files:
        raise StoreError(f"{path}: no such file or folder, and no file matches it as a glob")
    return files


def _read_file(file: Path, *, prompts: bool) -> Iterator[Trajectory]:
    try:
        with pq.ParquetFile(file) as parquet:
            _check(file, parquet.schema_arrow)
            for row_group in range(parquet.num_row_groups):
                for row in _read_rows(parquet, row_group):
                    yield _restore(file, row, prompts=prompts)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise StoreError(f"{file}: cannot be read as Parquet: {error}") from error


def _check(file: Path, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")
    if not version.isdecimal():
        raise StoreError(f"{file}: not a trajectory file: its metadata has no {VERSION_KEY.decode()}")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"{file}: has schema version {version}, this art-otel reads up to {SCHEMA_VERSION}; upgrade it"
        )
    for problem in _problems(pa.struct([field for field in ROW.type if field.name not in _DERIVED]), pa.struct(schema)):
        raise StoreError(f"{file}: {problem}; write it again from its source")


def _problems(expected: pa.DataType, found: pa.DataType, path: str = "") -> Iterator[str]:
    """What the found type lacks. Further columns and fields are ignored."""
    if pa.types.is_struct(expected) and pa.types.is_struct(found):
        for field in expected:
            name = f"{path}.{field.name}" if path else field.name
            index = found.get_field_index(field.name)
            if index < 0:
                yield f"column {name} is missing"
            else:
                yield from _problems(field.type, found.field(index).type, name)
    elif pa.types.is_list(expected) and pa.types.is_list(found):
        yield from _problems(expected.value_type, found.value_type, path)
    elif expected != found:
        yield f"column {path} is {found} instead of {expected}"


def _read_rows(parquet: pq.ParquetFile, row_group: int) -> list[Row]:
    wanted = [name for name in ROW.fields if name not in _DERIVED]
    table = parquet.read_row_group(row_group, columns=wanted)
    nulls = {name: pa.nulls(table.num_rows, ROW.fields[name].type) for name in _DERIVED}
    return ROW.assemble(nulls[name] if name in nulls else table.column(name).combine_chunks() for name in ROW.fields)


def _restore(file: Path, row: Row, *, prompts: bool) -> Trajectory:
    try:
        return restore_trajectory(row, prompts=prompts)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # what nulls and numbers out of place raise
        raise StoreError(f"{file}: rollout {row.rollout_id!r} is not what a trajectory can be: {error}") from error
