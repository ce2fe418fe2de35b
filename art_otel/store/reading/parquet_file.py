"""ParquetFile: a trajectory file that is open.

Invariant: it has our schema key and all our columns, with their types; else a StoreError names the file and what is
wrong with it. Further columns and fields do no harm.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from art_otel import storage
from art_otel.errors import StorageError, StoreError
from art_otel.store.rows.schema import READ_ROW
from art_otel.store.schema_version import FIRST_EDITION_KEY, SCHEMA_VERSION, VERSION_KEY


@contextmanager
def open_parquet(location: str) -> Generator[pq.ParquetFile]:
    """Open the file of a path or URL, and check it. Raises StoreError, also for what goes wrong within the block."""
    try:
        with storage.open_file(location) as file, pq.ParquetFile(file) as parquet:
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
    if FIRST_EDITION_KEY in metadata:
        raise StoreError(
            f"{name}: is of the first edition of art-otel's format, which this art-otel does not read; convert the "
            "sources again"
        )
    if not version.isdecimal():
        advice = _advice_on_rewritten(schema)
        raise StoreError(f"{name}: not a trajectory file: its metadata has no {VERSION_KEY.decode()}{advice}")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"{name}: has schema version {version}, this art-otel reads up to {SCHEMA_VERSION}; upgrade it"
        )
    for problem in _problems(READ_ROW.type, pa.struct(schema)):
        raise StoreError(f"{name}: {problem}; write it again from its source")


def _advice_on_rewritten(schema: pa.Schema) -> str:
    """What to do where the columns are those of a dataset: polars, pandas and others keep no metadata."""
    if not {"rollout_id", "trace_id", "turns"} <= set(schema.names):
        return ""
    return (
        "; another program wrote a dataset anew: choose trajectories with art_otel.read_trajectories and write them"
        " with art_otel.write_trajectories"
    )


def _problems(expected: pa.DataType, actual: pa.DataType, path: str = "") -> Iterator[str]:
    """What the actual type lacks."""
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
