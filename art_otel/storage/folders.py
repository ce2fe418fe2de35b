"""Folders: what is in one, and what goes. In a store a folder is what its files' keys begin with.

Invariant: what is not there needs no removing.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from art_otel.storage.buckets import located, told
from art_otel.storage.locations import is_url


def list_folder(folder: str) -> dict[str, int]:
    """The names of the files in a folder with their sizes; nothing where there is no folder."""
    if not is_url(folder):
        with told(folder):
            paths = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
            return {path.name: path.stat().st_size for path in paths if path.is_file()}
    from pyarrow.fs import FileSelector  # noqa: PLC0415 # slow to load

    with told(folder):
        files, path = located(folder)
        objects = cast(list[Any], files.get_file_info(FileSelector(path, allow_not_found=True)))
    return {info.base_name: info.size for info in sorted(objects, key=lambda info: info.path) if info.is_file}


def make_folder(folder: str) -> None:
    """Make a folder on this machine; a store needs none."""
    if not is_url(folder):
        with told(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)


def remove(location: str) -> None:
    """Remove a file, if it is there."""
    with told(location), suppress(FileNotFoundError):
        if is_url(location):
            files, path = located(location)
            files.delete_file(path)
        else:
            Path(location).unlink()


def remove_folder(folder: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with told(folder), suppress(FileNotFoundError):
        if is_url(folder):
            files, path = located(folder)
            files.delete_dir(path)
        else:
            shutil.rmtree(folder)


def sync_folder(folder: str) -> None:
    """Wait until the disk has the names in a folder. Windows cannot open a folder, and stores need no such thing."""
    if is_url(folder) or os.name != "posix":
        return
    with told(folder):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
