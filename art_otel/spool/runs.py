"""Runs: the folder of each run of an app in a spool, how much of it was taken, and when it is removed.

Invariant: all processes of a run write into one folder: forked ones inherit its name, started ones find it in the
environment variable `ART_OTEL_RUN`. Names sort by time. A folder is removed only if all of these hold:

- every file in it is a spool's;
- none of them was written to for as long as runs are kept;
- every byte was taken: converted, delivered by NewTrajectories, or gathered by the app itself.

Without a note that a file was taken, the folder stays.
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

from art_otel.errors import UsageError

SUFFIX: Final = ".otlp.jsonl"

DIR: Final = "ART_OTEL_DIR"
"""The variable that names the folder of everything that art-otel keeps for an app or a receiver."""

DEFAULT_DIR: Final = ".art"
"""That folder without the variable."""

RUN: Final = "ART_OTEL_RUN"
"""The variable that names the run. It is set for the processes that this one starts."""


def expanded(folder: str | Path) -> Path:
    """The folder with its `~` replaced. Raises UsageError where there is no such home folder."""
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        raise UsageError(f"{str(folder)!r}: its ~ leads to no home folder") from None


def name_run() -> str:
    """The name of this run, such as `20261129T183000Z-4711`, from the environment.

    Where the environment has none, a new name is made and set, so that processes started from here find it.
    """
    return os.environ.setdefault(RUN, f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")


def run_folder(spool: Path) -> Path:
    """The folder of this run in a spool."""
    return spool / Path(name_run()).name  # the last part only: the variable must not lead out of the spool


_TAKEN: Final = ".taken.json"
"""The file in a run's folder that says how many bytes of each spool file were taken. Its name begins with a dot, so
that readers of dumps pass it by."""
_WRITTEN: Final = re.compile(rf"\d+-\d+-[0-9a-f]{{8}}{re.escape(SUFFIX)}")


def note_taken(taken: Mapping[Path, int]) -> None:
    """Note how many bytes of these files were taken: converted, delivered or gathered. Other files are passed over.

    A disk that refuses the note is no error: the runs then stay.
    """
    by_folder: dict[Path, dict[str, int]] = {}
    for path, size in taken.items():
        if _WRITTEN.fullmatch(path.name):
            by_folder.setdefault(path.parent, {})[path.name] = size
    for folder, sizes in by_folder.items():
        known = _taken(folder)
        if not sizes.items() <= known.items():
            with contextlib.suppress(OSError):
                # Written beside and renamed, so that another process never reads half a note.
                temporary = folder / f"{_TAKEN}.{os.getpid()}"
                temporary.write_bytes(msgspec.json.encode(known | sizes))
                temporary.replace(folder / _TAKEN)


def _taken(folder: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode((folder / _TAKEN).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}


def remove_old_runs(spool: Path, keep_seconds: float) -> list[Path]:
    """Remove the runs that were written to last more than `keep_seconds` ago, and return their folders.

    A run of which any byte was not taken stays.
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
        with contextlib.suppress(OSError):  # a user's own file is in the folder, so the folder stays
            path.parent.rmdir()
