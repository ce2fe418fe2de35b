"""Runs: the folder of one run of an app in a spool.

Invariant: all processes of a run write into one folder: those that are forked inherit it, those that are started find
its name in their environment. Names sort by time.
"""

import os
import time
from pathlib import Path
from typing import Final

RUN: Final = "ART_OTEL_RUN"
"""The variable that names the run. It is set for the processes that this one starts."""


def name_run() -> str:
    """The name of this run: what the environment says, or a new one that the processes begun from here find there."""
    return os.environ.setdefault(RUN, f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")


def run_folder(spool: Path) -> Path:
    """The folder of this run."""
    return spool / Path(name_run()).name
