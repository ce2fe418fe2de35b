"""Replaceable: which files a writing may replace or remove.

Invariant: only those of which the content proves that art-otel wrote them. All others are refused by name.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from art_otel.errors import UsageError
from art_otel.sources.files.own_output import REPORT_NAME, is_ours
from art_otel.store.report import ConversionReport

MARK: Final = "_unfinished"
"""In a folder whose parts may be of two datasets. Readers of Parquet folders pass over names with an underscore."""


def check_replaceable(paths: Iterable[Path]) -> None:
    """Raise UsageError for a file that is there and was not written by art-otel."""
    for path in paths:
        if os.path.lexists(path) and not is_ours(path):
            raise _foreign(path)


def check_dataset_folder(folder: Path) -> None:
    """Raise UsageError where a dataset would replace a file of somebody else's, or stand among their parts."""
    check_replaceable(sorted(folder.glob("part-*.parquet")))
    mark = folder / MARK
    if mark.exists() and mark.stat().st_size:  # ours is empty
        raise _foreign(mark)


def check_conversion_folder(folder: Path) -> None:
    """As `check_dataset_folder`, and where the report would replace another file."""
    check_dataset_folder(folder)
    check_replaceable([folder / REPORT_NAME])


def _foreign(path: Path) -> UsageError:
    return UsageError(f"{path}: was not written by art-otel and is not replaced; move it away or write elsewhere")


def write_report(report: ConversionReport, out: Path) -> Path:
    """Write `_report.json` into the output folder, whole or not at all. Raises UsageError where another's stands."""
    path = out / REPORT_NAME
    check_replaceable([path])
    temporary = out / f".{REPORT_NAME}.tmp"
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return path
