"""Runs: the folder of each run of an app in a spool, and when it goes.

Invariant: all processes of a run write into one folder: those that are forked inherit it, those that are started find
its name in their environment. Names sort by time. A folder goes only when every file in it is a spool's and none was
written to for as long as runs are kept.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Final

from art_otel.spool.writer import SUFFIX

RUN: Final = "ART_OTEL_RUN"
"""The variable that names the run. It is set for the processes that this one starts."""


def name_run() -> str:
    """The name of this run: what the environment says, or a new one that the processes begun from here find there."""
    return os.environ.setdefault(RUN, f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")


def run_folder(spool: Path) -> Path:
    """The folder of this run."""
    return spool / Path(name_run()).name


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
