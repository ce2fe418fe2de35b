"""Parquet to JSON lines, a row a line: a program of its own, because a Parquet file can be a bomb.

Its input is the file, its output the lines, its errors what could not be read: `reason TAB place TAB detail` a line,
with the reason `unreadable` for a file that is no Parquet at all. A few hundred bytes may decode to any size, and what
the footer says of it may be a lie, so only the limit that the system sets to this process's memory is a guard. Where
the system has none (macOS, Windows), the sizes of batches are the only bound.

Invariant: in every row group, every row before the first that cannot be read is written.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import contextlib
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import BinaryIO, Final, TextIO, TypeAlias

import pyarrow.parquet as pq

from art_otel.sources.files.parquet_columns import read_columns
from art_otel.sources.files.parquet_process import OUT_OF_MEMORY, UNREADABLE
from art_otel.sources.files.parquet_rows import json_rows

Problem: TypeAlias = tuple[str, str, str]
"""(reason, place, detail)"""

BATCH_BYTES: Final = 4 << 20
MAX_BATCH_ROWS: Final = 1024
READ_BYTES: Final = 1 << 20


def write_lines(file: BinaryIO, output: BinaryIO, problems: TextIO) -> None:
    """Write every row as a line of JSON."""
    for line in read_lines(file):
        if isinstance(line, bytes):
            output.write(line)
            output.write(b"\n")
        else:
            problems.write("\t".join(part.replace("\t", " ").replace("\n", " ") for part in line) + "\n")


def read_lines(file: BinaryIO) -> Iterator[bytes | Problem]:
    """Every row of the file, and what could not be read."""
    try:
        opened = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES)
        groups = [opened.metadata.row_group(number) for number in range(opened.num_row_groups)]
        columns = read_columns(opened.schema_arrow.names)
    except Exception as error:  # noqa: BLE001 # whatever pyarrow raises over foreign bytes, the parent is told
        yield "over a limit" if _lacked_memory(error) else UNREADABLE, "", _told(error)
        return
    for number, group in enumerate(groups):
        yield from _group(opened, number, _batch_rows(group.num_rows, group.total_byte_size), columns)


def _batch_rows(rows: int, size: int) -> int:
    """How many rows hold about BATCH_BYTES, if the footer is right."""
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))


def _group(
    opened: pq.ParquetFile, number: int, batch_rows: int, columns: list[str] | None
) -> Iterator[bytes | Problem]:
    """The rows of a row group; when a batch cannot be read, the rest of them one by one."""
    done = 0
    problem: Problem = ("torn", f"row group {number + 1}", "")
    for rows in (batch_rows, 1):
        try:
            batches = opened.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False)
            for line in islice((line for batch in batches for line in json_rows(batch)), done, None):
                yield line
                done += 1
        except Exception as error:  # noqa: BLE001 # as above
            reason = "over a limit" if _lacked_memory(error) else "torn"
            problem = (reason, f"row group {number + 1}, row {done + 1}", _told(error))
        else:
            return
    yield problem


def _lacked_memory(error: Exception) -> bool:
    # An import that fails this late lacked the memory to be loaded.
    return isinstance(error, MemoryError | ImportError) or any(mark in str(error) for mark in OUT_OF_MEMORY)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def limit_memory(size: int) -> None:
    """Let the system refuse this process more than `size` bytes of data."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # this system has no such limit
        import resource  # noqa: PLC0415 # Windows does not have it

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


if __name__ == "__main__":
    import_module("pyarrow.compute")  # loaded on first use otherwise, for which there may be no memory left
    limit_memory(int(sys.argv[1]))
    write_lines(sys.stdin.buffer, sys.stdout.buffer, sys.stderr)
