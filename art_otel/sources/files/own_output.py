"""OwnOutput: what art-otel wrote is no dump.

Invariant: a dataset that lies among dumps is passed over, and whoever names one is told what reads it.
"""

import os
from pathlib import Path
from typing import BinaryIO, Final

REPORT_NAME: Final = "_report.json"
SCHEMA_KEY: Final = b"art_otel.schema"
MAX_FOOTER_BYTES: Final = 64 << 20

WHAT_READS_IT: Final = (
    "is a dataset of art-otel already, and no dump: `art-otel show` and `art-otel export` read it, and"
    " art_otel.read_trajectories does"
)


def is_own_output(path: Path) -> bool:
    """Whether art-otel wrote the file: its report, or a Parquet file whose footer holds our schema key."""
    if path.name == REPORT_NAME:
        return True
    if path.suffix != ".parquet":
        return False
    try:
        with path.open("rb") as file:
            return SCHEMA_KEY in _parquet_footer(file)
    except OSError:
        return False  # reading it later says why


def _parquet_footer(file: BinaryIO) -> bytes:
    """The footer of a Parquet file: its length stands in 4 little-endian bytes before the closing magic PAR1."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > min(size - 8, MAX_FOOTER_BYTES):
        return b""
    file.seek(size - 8 - length)
    return file.read(length)
