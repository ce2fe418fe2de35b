"""The store: trajectories in Parquet, and the report of a conversion. docs/spec/parquet.md owns the format."""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names

if TYPE_CHECKING:
    from art_otel.store.grouping import FileLimits
    from art_otel.store.read import RowGroup, Wanted, read_row_group, read_trajectories, row_groups
    from art_otel.store.replaceable import check_conversion_folder, check_replaceable
    from art_otel.store.report import (
        REPORT_NAME,
        CallCounts,
        ConversionReport,
        FileReport,
        LogCounts,
        QuarantineEntry,
        RewardCounts,
        SpanCounts,
        TrajectoryCounts,
        write_report,
    )
    from art_otel.store.runs import merge_runs, write_run
    from art_otel.store.schema import SCHEMA_VERSION
    from art_otel.store.write import WriteSummary, write_trajectories

__all__ = [
    "REPORT_NAME",
    "SCHEMA_VERSION",
    "CallCounts",
    "ConversionReport",
    "FileLimits",
    "FileReport",
    "LogCounts",
    "QuarantineEntry",
    "RewardCounts",
    "RowGroup",
    "SpanCounts",
    "TrajectoryCounts",
    "Wanted",
    "WriteSummary",
    "check_conversion_folder",
    "check_replaceable",
    "merge_runs",
    "read_row_group",
    "read_trajectories",
    "row_groups",
    "write_report",
    "write_run",
    "write_trajectories",
]

__getattr__ = lazy_names(
    __name__,
    {
        "grouping": ("FileLimits",),
        "read": ("RowGroup", "Wanted", "read_row_group", "read_trajectories", "row_groups"),
        "replaceable": ("check_conversion_folder", "check_replaceable"),
        "report": (
            "CallCounts",
            "ConversionReport",
            "FileReport",
            "LogCounts",
            "QuarantineEntry",
            "REPORT_NAME",
            "RewardCounts",
            "SpanCounts",
            "TrajectoryCounts",
            "write_report",
        ),
        "runs": ("merge_runs", "write_run"),
        "schema": ("SCHEMA_VERSION",),
        "write": ("WriteSummary", "write_trajectories"),
    },
)
