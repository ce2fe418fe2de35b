"""Conversion: `art-otel convert` as a function.

Invariant: it converts as the command does, with the same defaults and the same report.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from art_otel.engines import Conversion
from art_otel.engines import convert as run_conversion

if TYPE_CHECKING:
    from art_otel.store import ConversionReport


def convert(
    sources: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    format: str = "auto",  # noqa: A002 # the option's name
    workers: int | None = None,
    rollout_spans: Iterable[str] = (),
    incremental: bool = False,
    rollout_traces: bool = False,
) -> "ConversionReport":
    """Convert span dumps into a Parquet dataset of trajectories, as `art-otel convert` does, and return its report.

    `sources` are files, folders, globs or URLs, one or several; `out` is the dataset's folder or URL. `format` names
    the dumps' format, `auto` detects it by content. `workers` is the number of processes, None one a processor, fewer
    for little input. `rollout_spans` are globs of the names of spans that count as rollouts where no span carries a
    rollout id. `incremental` reads only what no earlier conversion into `out` read, and adds its trajectories.
    `rollout_traces` also writes what `read_rollout_traces` reads. Raises UsageError, SourceError and StoreError.
    """
    several = [sources] if isinstance(sources, str | Path) else sources
    return run_conversion(
        Conversion(
            sources=[os.fspath(source) for source in several],
            out=out,
            format=None if format == "auto" else format,
            workers=workers,
            rollout_spans=tuple(rollout_spans),
            incremental=incremental,
            rollout_traces=rollout_traces,
        )
    )
