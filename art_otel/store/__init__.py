"""The store: trajectories in Parquet, and the report of a conversion. docs/spec/parquet.md owns the format."""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names

if TYPE_CHECKING:
    from art_otel.store.dataset.files import SUFFIX
    from art_otel.store.dataset.manifest import REPORT_NAME, Manifest, Part, read_manifest
    from art_otel.store.dataset.ownership import check_replaceable
    from art_otel.store.reading.read import RowGroup, Wanted, read_keys, read_row_group, read_trajectories, row_groups
    from art_otel.store.reading.rollout_traces import read_rollout_traces
    from art_otel.store.report import (
        CallCounts,
        ConversionReport,
        FileReport,
        LogCounts,
        QuarantineEntry,
        RewardCounts,
        SpanCounts,
        TrajectoryCounts,
    )
    from art_otel.store.rows.art import art_metadata
    from art_otel.store.rows.transfer import decode_trajectory, encode_trajectory
    from art_otel.store.schema_version import SCHEMA_VERSION
    from art_otel.store.writing.part_writer import FileLimits, PartWriter, write_part
    from art_otel.store.writing.write import WriteSummary, write_trajectories

__all__ = [
    "REPORT_NAME",
    "SCHEMA_VERSION",
    "SUFFIX",
    "CallCounts",
    "ConversionReport",
    "FileLimits",
    "FileReport",
    "LogCounts",
    "Manifest",
    "Part",
    "PartWriter",
    "QuarantineEntry",
    "RewardCounts",
    "RowGroup",
    "SpanCounts",
    "TrajectoryCounts",
    "Wanted",
    "WriteSummary",
    "art_metadata",
    "check_replaceable",
    "decode_trajectory",
    "encode_trajectory",
    "read_keys",
    "read_manifest",
    "read_rollout_traces",
    "read_row_group",
    "read_trajectories",
    "row_groups",
    "write_part",
    "write_trajectories",
]

__getattr__ = lazy_names(
    __name__,
    {
        "rows.art": ("art_metadata",),
        "dataset.manifest": ("REPORT_NAME", "Manifest", "Part", "read_manifest"),
        "dataset.ownership": ("check_replaceable",),
        "writing.part_writer": ("FileLimits", "PartWriter", "write_part"),
        "reading.read": ("RowGroup", "Wanted", "read_keys", "read_row_group", "read_trajectories", "row_groups"),
        "report": (
            "CallCounts",
            "ConversionReport",
            "FileReport",
            "LogCounts",
            "QuarantineEntry",
            "RewardCounts",
            "SpanCounts",
            "TrajectoryCounts",
        ),
        "reading.rollout_traces": ("read_rollout_traces",),
        "schema_version": ("SCHEMA_VERSION",),
        "dataset.files": ("SUFFIX",),
        "rows.transfer": ("decode_trajectory", "encode_trajectory"),
        "writing.write": ("WriteSummary", "write_trajectories"),
    },
)
