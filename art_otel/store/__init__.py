"""The store: trajectories in Parquet, and the report of a conversion. docs/spec/parquet.md owns the format."""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.store.combined import Combined as Combined
    from art_otel.store.combined import combine as combine
    from art_otel.store.commit import check_replaceable as check_replaceable
    from art_otel.store.files import SUFFIX as SUFFIX
    from art_otel.store.files import find_all_files as find_all_files
    from art_otel.store.part_writer import FileLimits as FileLimits
    from art_otel.store.part_writer import PartWriter as PartWriter
    from art_otel.store.part_writer import write_part as write_part
    from art_otel.store.read import RowGroup as RowGroup
    from art_otel.store.read import Wanted as Wanted
    from art_otel.store.read import groups_of as groups_of
    from art_otel.store.read import read_keys as read_keys
    from art_otel.store.read import read_rollout_traces as read_rollout_traces
    from art_otel.store.read import read_row_group as read_row_group
    from art_otel.store.read import read_trajectories as read_trajectories
    from art_otel.store.read import row_groups as row_groups
    from art_otel.store.report import PLAN_PREFIX as PLAN_PREFIX
    from art_otel.store.report import REPORT_NAME as REPORT_NAME
    from art_otel.store.report import SCHEMA_VERSION as SCHEMA_VERSION
    from art_otel.store.report import CallCounts as CallCounts
    from art_otel.store.report import ConversionReport as ConversionReport
    from art_otel.store.report import FileReport as FileReport
    from art_otel.store.report import LogCounts as LogCounts
    from art_otel.store.report import Manifest as Manifest
    from art_otel.store.report import Part as Part
    from art_otel.store.report import QuarantineEntry as QuarantineEntry
    from art_otel.store.report import RewardCounts as RewardCounts
    from art_otel.store.report import RowKey as RowKey
    from art_otel.store.report import SpanCounts as SpanCounts
    from art_otel.store.report import TrajectoryCounts as TrajectoryCounts
    from art_otel.store.report import read_hints as read_hints
    from art_otel.store.report import read_manifest as read_manifest
    from art_otel.store.rows import art_metadata as art_metadata
    from art_otel.store.rows import decode_trajectory as decode_trajectory
    from art_otel.store.rows import encode_trajectory as encode_trajectory
    from art_otel.store.write import WriteSummary as WriteSummary
    from art_otel.store.write import write_trajectories as write_trajectories
