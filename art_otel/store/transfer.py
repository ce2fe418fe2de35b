"""Transfer: trajectories as bytes, from one process to another of the same version.

Invariant: the columns are those of a dataset, so reading gives back the same objects; equal trajectories give equal
bytes.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import Iterable

import pyarrow as pa

from art_otel.errors import StoreError
from art_otel.store.part_writer import flatten_row, make_table
from art_otel.store.read import WHOLE, restore_trajectories
from art_otel.trajectories import Trajectory

_NAME = "received rollouts"


def encode_trajectories(trajectories: Iterable[Trajectory]) -> bytes:
    """Encode trajectories as an Arrow IPC stream. Raises StoreError for one that no column can hold."""
    table = make_table([flatten_row(trajectory)[0] for trajectory in trajectories])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_trajectories(data: bytes) -> list[Trajectory]:
    """Read what `encode_trajectories` gave. Raises StoreError for anything else."""
    try:
        with pa.ipc.open_stream(data) as stream:
            table = stream.read_all()
    except pa.ArrowException as error:
        raise StoreError(f"{_NAME}: these are no trajectories: {error}") from error
    return list(restore_trajectories(_NAME, table, WHOLE))
