"""Retention: removing runs that are older than somebody wants to keep them.

Invariant: a folder goes only when every file in it is a spool's and none was written to since.
"""

import shutil
import time
from pathlib import Path

from art_otel.spool.writer import SUFFIX


def remove_old_runs(spool: Path, keep_seconds: float) -> list[Path]:
    """Remove the runs that were written to last more than `keep_seconds` ago, and give their folders."""
    before = time.time() - keep_seconds
    old = [folder for folder in sorted(spool.glob("*")) if folder.is_dir() and _is_older(folder, before)]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return old


def _is_older(folder: Path, before: float) -> bool:
    files = list(folder.iterdir())
    return bool(files) and all(file.name.endswith(SUFFIX) and file.stat().st_mtime < before for file in files)
