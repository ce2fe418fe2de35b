"""RunHistory: history.jsonl, a JSON object a line for each log call.

Invariant: what is appended is a whole line of its own, on the disk when `append_row` returns. A line that a crash left
unfinished is taken away before the next one is written, because readers such as polars refuse the whole file for it.
Source of the format: `Model._log_metrics` of openpipe-art 0.5.18.
"""

import errno
import json
import logging
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from art_otel.spans import Value

HistoryRow: TypeAlias = dict[str, Value]
"""Metrics by name, and `step`, `training_step`, `time/wall_clock_sec`, `recorded_at`."""

_BINARY: Final = getattr(os, "O_BINARY", 0)

logger = logging.getLogger(__name__)


def append_row(path: Path, row: Mapping[str, Value]) -> None:
    """Append a row with one write and wait for the disk. The caller holds the run's folder.

    Raises OSError when the disk does not take the whole line, which then is not there at all.
    """
    line = json.dumps(row, allow_nan=False).encode() + b"\n"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)
    try:
        end = _mended_end(path, descriptor)
        if os.write(descriptor, line) != len(line):
            os.ftruncate(descriptor, end)
            raise OSError(errno.ENOSPC, "no space for a row", str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_rows(path: Path) -> Iterator[HistoryRow]:
    """The rows in order. Without a file there are none; a line that is no JSON object is left out with a warning."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                row = _row(line)
                if row is not None:
                    yield row
                elif line.strip():
                    logger.warning("%s:%d: not a row of a run's history; left out", path, number)
    except FileNotFoundError:
        return


def step_of(row: HistoryRow) -> int | None:
    """The row's step; None when it has none."""
    step = row.get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def means_by_step(rows: Iterable[HistoryRow], metric: str) -> dict[int, float]:
    """The mean of a metric over the rows of each step; steps without a finite value are left out."""
    values: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        step, value = step_of(row), _finite(row.get(metric))
        if step is not None and value is not None:
            values[step].append(value)
    return {step: sum(step_values) / len(step_values) for step, step_values in values.items()}


def _finite(value: Value) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _row(line: bytes) -> HistoryRow | None:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(HistoryRow, row) if isinstance(row, dict) else None


def _mended_end(path: Path, descriptor: int) -> int:
    """Where the next row begins, once a last line without an end has got one or is gone."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    if end == 0:
        return 0
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(end - 1)
        if file.read(1) == b"\n":
            return end
        file.seek(0)
        whole = file.read()
    start = whole.rfind(b"\n") + 1
    if _row(whole[start:]) is not None:
        return end + os.write(descriptor, b"\n")
    logger.warning("%s: its last %d bytes are an unfinished row; removed", path, len(whole) - start)
    os.ftruncate(descriptor, start)
    return start
