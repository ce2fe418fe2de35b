"""ExportReport: what an export wrote, and what it did not.

Invariant: trajectories read = used + left out (by reason). A format without a place for a field says so here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from art_otel.exporting.whole_file import whole_file


@dataclass(frozen=True, kw_only=True, slots=True)
class NotCarried:
    """A field that the format has no place for: how many selected trajectories have it, and what to know.

    `trajectories` is None where only reading messages and tokens would tell.
    """

    trajectories: int | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportReport:
    """Counts of an export.

    `skipped` counts what is smaller than a trajectory by reason (histories, sequences, completions, pairs, records),
    `changed` what the format forced on records, `not_carried` fields by name.
    """

    exporter: str
    format: str
    records: int
    files: tuple[str, ...]
    trajectories: int
    trajectories_used: int
    trajectories_skipped: Mapping[str, int]
    skipped: Mapping[str, int]
    changed: Mapping[str, int]
    not_carried: Mapping[str, NotCarried]


def write_report(report: ExportReport, out: Path, *, single: bool) -> Path:
    """Write the report into the folder of the export, or beside its single file. Its path."""
    path = out.with_name(f"{out.name}.report.json") if single else out / "_export.json"
    with whole_file(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return path
