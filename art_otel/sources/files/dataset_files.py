"""OwnOutput: what art-otel wrote is no dump, and nothing else may be replaced by what it writes.

Invariant: a dataset that lies among dumps is passed over, and whoever names one is told what reads it.
"""

import os
from pathlib import Path
from typing import BinaryIO, Final

REPORT_NAME: Final = "_report.json"
PENDING_PREFIX: Final = "_pending-"
KEPT_PREFIX: Final = "_kept-"
SCHEMA_KEY: Final = b"art_otel.schema"
MAX_FOOTER_BYTES: Final = 64 << 20

WHAT_READS_IT: Final = (
    "is a dataset of art-otel already, and no dump: `art-otel show` and `art-otel export` read it, and"
    " art_otel.read_trajectories does"
)


SCRATCH_PREFIX: Final = ".art-otel-scratch-"


def is_scratch(path: str) -> bool:
    """Whether a file lies in the scratch folder of a conversion."""
    return any(part.startswith(SCRATCH_PREFIX) for part in path.split("/"))


def has_own_name(name: str) -> bool:
    """Whether a file has the name of a report of ours, or of what a conversion is about to write or keeps."""
    is_pending = name.startswith(PENDING_PREFIX) and name.endswith(".json")
    return name == REPORT_NAME or is_pending or name.startswith(KEPT_PREFIX)


def is_dataset_file(path: Path) -> bool:
    """Whether a file is no dump: it has one of our names, or we wrote it."""
    return has_own_name(path.name) or _has_own_schema(path)


def _has_own_schema(path: Path) -> bool:
    """Whether it is Parquet with our schema key."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".parquet" and SCHEMA_KEY in _parquet_footer(file)
    except OSError:
        return False


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
