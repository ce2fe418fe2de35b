"""Inputs of a conversion that tasks can read anywhere, as often as they must.

Invariant: none is of the dataset that is replaced, none is a pipe.
"""

import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import msgspec

from art_otel.errors import SourceError
from art_otel.sources import Input
from art_otel.sources.files.dataset_files import WHAT_READS_IT, is_dataset_file


def without_dataset(inputs: Sequence[Input], out: str) -> list[Input]:
    """The inputs but for the dataset that is to be replaced, where the sources lead to it too."""
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


def as_file(source: Input, folder: str) -> Input:
    """The input; of standard input and pipes a copy in this folder. Raises SourceError for what cannot be copied."""
    if source.stored is not None or (source.path is not None and not _is_pipe(source.path)):
        return source
    if source.path is None and sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] # as Python has it when closed
        raise SourceError(f"{source.name}: standard input is closed")
    copy = Path(folder, f"input-{uuid4().hex}")
    try:
        with copy.open("wb") as target:
            if source.path is None:
                shutil.copyfileobj(sys.stdin.buffer, target)
            else:
                with source.path.open("rb") as opened:
                    shutil.copyfileobj(opened, target)
    except (OSError, ValueError) as error:  # a closed stream is a ValueError
        raise SourceError(f"{source.name}: cannot be read: {error}") from error
    return msgspec.structs.replace(source, path=copy, size=copy.stat().st_size)


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:  # reading it says why
        return False
