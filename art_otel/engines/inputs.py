"""Inputs of a conversion that tasks can read anywhere, as often as they must.

Invariant: none is of the dataset that is replaced, none is a pipe.
"""

import os
import stat
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.errors import SourceError
from art_otel.sources import Input
from art_otel.sources.files.inputs import WHAT_READS_IT, has_own_name, is_dataset_file, stored_input
from art_otel.sources.files.streams import open_unbuffered
from art_otel.store.manifest import is_part_name

_BLOCK: Final = 1 << 20


def without_dataset(inputs: Sequence[Input], out: str) -> list[Input]:
    """The inputs but for the dataset that is to be replaced, where the sources lead to it too."""
    if storage.is_url(out):
        others = [source for source in inputs if not _is_of_stored_dataset(source, out)]
    else:
        folder = Path(os.path.realpath(out))
        others = [source for source in inputs if not _is_of_dataset(source, folder)]
    if inputs and not others:
        raise SourceError(f"{inputs[0].name}: {WHAT_READS_IT}")
    return others


def _is_of_dataset(source: Input, folder: Path) -> bool:
    if source.path is None:
        return False
    path = Path(os.path.realpath(source.path))
    return path.parent == folder and is_dataset_file(path)


def _is_of_stored_dataset(source: Input, out: str) -> bool:
    """By its place and name: no other part may lie there, see `store.commit`."""
    if source.stored is None:
        return False
    folder, _, name = source.stored.path.rpartition("/")
    return folder == storage.located(out)[1] and (is_part_name(name) or has_own_name(name))


def changed_since(since: int | None, inputs: Sequence[Input]) -> list[Input]:
    """The inputs that were changed at this time (ns) or later, and those of which nobody knows when they were."""
    return [one for one in inputs if since is None or one.mtime_ns is None or one.mtime_ns >= since]


def as_file(source: Input, folder: str) -> Input:
    """The input; of standard input and pipes a copy in this folder. Raises SourceError for what cannot be read."""
    if source.stored is not None or (source.path is not None and not _is_pipe(source.path)):
        return source
    location = storage.join(folder, f"input-{uuid4().hex}")
    with storage.staged(location) as path, open_unbuffered(source) as pipe, path.open("wb") as target:
        while block := _next_block(pipe, source.name):
            target.write(block)
    if storage.is_url(location):
        return stored_input(location, source.name)
    return msgspec.structs.replace(source, path=Path(location), size=storage.size_of(location))


def _next_block(pipe: FileIO, name: str) -> bytes | None:
    try:
        return pipe.read(_BLOCK)
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error}") from error


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:  # reading it says why
        return False
