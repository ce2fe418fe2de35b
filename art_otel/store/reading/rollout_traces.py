"""Reading rollout traces: what each LLM call of a dataset saw, did and was worth.

Invariant: what comes out equals `rollout_traces` of the trajectories that were written. Calls and turns are not read.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from art_otel import storage
from art_otel.errors import StoreError
from art_otel.store.dataset.files import find_all_files
from art_otel.store.reading.parquet_file import open_parquet
from art_otel.store.rows.schema import TRACES_ROW
from art_otel.trajectories import RolloutTrace


def read_rollout_traces(path: str | Path | Iterable[str | Path]) -> Iterator[RolloutTrace]:
    """Read the rollout traces of a dataset that was converted with `--rollout-traces`.

    Paths and order are those of `read_trajectories`; a rollout's are in the order of its calls. Memory is that of one
    row group. Raises UsageError for a file that is given twice; StoreError, for a path without files at once, else
    while iterating, for files without rollout traces too.
    """
    files = find_all_files(path)
    return (trace for file in files for trace in _read_file(file.location))


def _read_file(location: str) -> Iterator[RolloutTrace]:
    with open_parquet(location) as parquet:
        present = [name for name in TRACES_ROW.names if name in parquet.schema_arrow.names]
        for index in range(parquet.num_row_groups):
            table = parquet.read_row_group(index, columns=present)
            arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
            try:
                rows = TRACES_ROW.assemble(arrays, table.num_rows)
            except msgspec.DecodeError as error:  # a text is no JSON
                raise StoreError(f"{storage.shown(location)}: its rollout traces cannot be read: {error}") from error
            for row in rows:
                if row["rollout_traces"] is None:
                    raise StoreError(
                        f"{storage.shown(location)}: rollout {row['rollout_id']!r} has no rollout traces;"
                        " convert its dumps with --rollout-traces, or use art_otel.rollout_traces(trajectory)"
                    )
                for trace in row["rollout_traces"]:
                    yield RolloutTrace(rollout_id=row["rollout_id"], **trace)
