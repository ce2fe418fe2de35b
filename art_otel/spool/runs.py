"""Runs: the folder of each run of an app in a spool, what of it was taken, and when it goes.

Invariant: all processes of a run write into one folder: those that are forked inherit it, those that are started find
its name in their environment. Names sort by time. A folder goes only when every file in it is a spool's, none was
written to for as long as runs are kept, and all of each was taken: converted, or handed out by NewTrajectories or to
the app that gathered it. Where nothing says so, nothing goes.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

SUFFIX: Final = ".otlp.jsonl"

RUN: Final = "ART_OTEL_RUN"
"""The variable that names the run. It is set for the processes that this one starts."""


def name_run() -> str:
    """The name of this run: what the environment says, or a new one that the processes begun from here find there."""
    return os.environ.setdefault(RUN, f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")


def run_folder(spool: Path) -> Path:
    """The folder of this run."""
    return spool / Path(name_run()).name


_TAKEN: Final = ".taken.json"
"""The file of a run's folder that says how many bytes of each of its files somebody has: hidden, so it is no dump."""
_WRITTEN: Final = re.compile(rf"\d+-\d+-[0-9a-f]{{8}}{re.escape(SUFFIX)}")


def note_taken(taken: Mapping[Path, int]) -> None:
    """Note that so many bytes of these files were converted or handed out; of those that are a spool's.

    Where it cannot be written nothing is noted, so that the runs stay.
    """
    by_folder: dict[Path, dict[str, int]] = {}
    for path, size in taken.items():
        if _WRITTEN.fullmatch(path.name):
            by_folder.setdefault(path.parent, {})[path.name] = size
    for folder, sizes in by_folder.items():
        known = _taken(folder)
        if not sizes.items() <= known.items():
            with contextlib.suppress(OSError):
                temporary = folder / f"{_TAKEN}.{os.getpid()}"
                temporary.write_bytes(msgspec.json.encode(known | sizes))
                temporary.replace(folder / _TAKEN)


def _taken(folder: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode((folder / _TAKEN).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}


def remove_old_runs(spool: Path, keep_seconds: float) -> list[Path]:
    """Remove the runs that were written to last more than `keep_seconds` ago, and give their folders.

    One of which anything was neither converted nor handed out stays.
    """
    before = time.time() - keep_seconds
    old = [folder for folder in sorted(spool.glob("*")) if folder.is_dir() and _is_over(folder, before)]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return old


def _is_over(folder: Path, before: float) -> bool:
    taken = _taken(folder)
    files = [file for file in folder.iterdir() if file.name != _TAKEN]
    return bool(files) and all(_is_over_file(file, taken.get(file.name, 0), before) for file in files)


def _is_over_file(file: Path, taken: int, before: float) -> bool:
    status = file.stat()
    return file.name.endswith(SUFFIX) and status.st_mtime < before and status.st_size <= taken


def remove_file(path: Path) -> None:
    """Remove a file of a spool, and its folder when nothing of ours is left in it. Raises OSError."""
    path.unlink()
    if not any(path.parent.glob(f"*{SUFFIX}")):
        (path.parent / _TAKEN).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody has files of his own there
            path.parent.rmdir()
