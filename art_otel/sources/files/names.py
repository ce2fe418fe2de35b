"""Names of files: globs, the same for files and for objects of a store, and what this tool itself writes.

Invariant: `*`, `?` and `[…]` stay inside a folder, and a part `**` is any folders, or all below as the last one. A
dataset that lies among dumps is passed over, and whoever names one is told what reads it.
"""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final

_GLOB: Final = re.compile(r"[*?\[]")


def is_glob(path: str) -> bool:
    """Whether a path is a pattern."""
    return _GLOB.search(path) is not None


def folder_of(glob: str) -> str:
    """The deepest folder in which all matches lie; empty for the current one."""
    return _GLOB.split(glob, maxsplit=1)[0].rpartition("/")[0]


def matches(path: str, glob: str) -> bool:
    """Whether a path matches."""
    return _match(path.split("/"), glob.split("/"))


def _match(path: Sequence[str], glob: Sequence[str]) -> bool:
    if not path or not glob:
        return not path and not glob
    if glob[0] != "**":
        return fnmatchcase(path[0], glob[0]) and _match(path[1:], glob[1:])
    return len(glob) == 1 or any(_match(path[at:], glob[1:]) for at in range(len(path)))


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
