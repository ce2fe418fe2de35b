"""Run summary: the last line of `art-otel run`: how many calls were recorded, where, and what to do with them.

Invariant: only the program that `art-otel run` was given writes the line, to standard error. An error in here is logged
and changes neither the program's output nor its exit status.
"""

import os
import sys
from pathlib import Path
from typing import Final

from art_otel.conventions import role_of
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.spool import run_folder
from art_otel.tracing.autoload import is_off
from art_otel.tracing.internal_errors import guarded
from art_otel.tracing.setup.configure import tracing

_MOST_BYTES: Final = 64 << 20
"""A larger spool is not counted call by call: reading it would make the user wait."""


@guarded
def write_run_summary() -> None:
    """Write the line, if this process is traced into a spool."""
    spool = tracing.settings.spool_folder
    if not tracing.settings.enabled or spool is None or is_off():
        return
    tracing.flush(5.0)
    folder = run_folder(Path(spool))
    files = [path for path in folder.glob("*") if path.is_file() and not path.name.startswith(".")]
    size = sum(path.stat().st_size for path in files)
    shown = os.path.relpath(spool) if Path(spool).is_relative_to(Path.cwd()) else str(spool)
    if size > _MOST_BYTES:
        counted = f"{size >> 20:,} MiB of spans"
    else:
        inputs = find_inputs([str(folder)]) if files else ()
        records = (record for file in inputs for record in read_file(file, FileStats()))
        recorded = {
            record.key: (record.trace_id, record.parent_span_id)
            for record in records
            if isinstance(record, Span) and record.end_ns is not None and role_of(record) == "inference"
        }
        # A call span inside of a call span is a second recording of the same call.
        calls = [key for key, parent in recorded.items() if parent not in recorded]
        counted = f"{len(calls):,} call{'' if len(calls) == 1 else 's'}"
        if not calls:
            sys.stderr.write(f"art-otel: no call of a model was recorded in {shown}; `art-otel doctor` says why\n")
            return
    sys.stderr.write(f"art-otel: {counted} in {shown}; `art-otel convert {shown} --out dataset` makes trajectories\n")
