"""Ownership: which files a writing may replace or remove.

Invariant: only those that art-otel wrote. All others are refused by name, before anything is written.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import os
from collections.abc import Iterable
from pathlib import Path

from art_otel.errors import UsageError
from art_otel.store.schema_version import FIRST_EDITION_KEY, VERSION_KEY


def check_replaceable(paths: Iterable[Path]) -> None:
    """Raise UsageError for a path that is there and is no trajectory file."""
    for path in paths:
        if os.path.lexists(path) and not _is_trajectory_file(path):
            raise not_ours(str(path))


def not_ours(location: str) -> UsageError:
    """The error for a file of somebody else's where something is to be written."""
    return UsageError(f"{location}: was not written by art-otel and is not replaced; move it away or write elsewhere")


def _is_trajectory_file(path: Path) -> bool:
    import pyarrow as pa  # noqa: PLC0415 # slow to load, and needed only where something stands already
    import pyarrow.parquet as pq  # noqa: PLC0415 # as above

    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return VERSION_KEY in metadata or FIRST_EDITION_KEY in metadata
