"""Encoded groups: files put together from row groups have the bytes that pyarrow writes for them at once."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from art_otel.engines.workers import Workers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel.store import FileLimits, merge_runs, write_run, write_trajectories
from art_otel.store.encoded_group import _writer_options, encode_group, encode_group_into
from art_otel.store.parquet_footer import split_footer
from art_otel.store.schema import SCHEMA
from art_otel.testing import trajectories
from tests.store.test_columns import ANSWER, QUESTION, call, trajectory

IN_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def by_pyarrow(file: Path) -> bytes:
    """A file of the same row groups as pyarrow writes it."""
    sink, source = io.BytesIO(), pq.ParquetFile(file)
    with pq.ParquetWriter(sink, SCHEMA, **_writer_options()) as writer:
        writer.add_key_value_metadata(SCHEMA.metadata)
        for number in range(source.num_row_groups):
            group = source.read_row_group(number).replace_schema_metadata(SCHEMA.metadata)
            writer.write_table(group, row_group_size=max(1, group.num_rows))
    return sink.getvalue()


@given(st.lists(trajectories(), max_size=6, unique_by=lambda each: each.order), st.integers(1, 3))
@IN_FOLDER
def test_a_file_has_pyarrows_bytes(tmp_path_factory, found, group_rows):
    file = tmp_path_factory.mktemp("groups") / "all.parquet"
    write_trajectories(found, file, limits=FileLimits(group_rows=group_rows))
    assert file.read_bytes() == by_pyarrow(file)


@pytest.mark.parametrize("groups", [0, 1, 14, 15, 16, 300])
def test_any_number_of_row_groups(tmp_path, groups):
    file = tmp_path / "all.parquet"
    found = [trajectory(f"r{number:05d}", call(1, (QUESTION,), ANSWER)) for number in range(groups)]
    write_trajectories(found, file, limits=FileLimits(group_rows=1))
    assert pq.ParquetFile(file).num_row_groups == groups
    assert file.read_bytes() == by_pyarrow(file)


def test_processes_encode_the_same_bytes_and_leave_no_file(tmp_path):
    found = [trajectory(f"r{number:05d}", call(1, (QUESTION,), ANSWER)) for number in range(40)]
    limits = FileLimits(group_rows=3, part_rows=8)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    runs = [scratch / f"run-{number}" for number in range(3)]
    for number, run in enumerate(runs):
        write_run(found[number::3], run)
    write_trajectories(found, tmp_path / "direct", limits=limits)
    with Workers(2) as workers:
        merge_runs(runs, tmp_path / "merged", limits=limits, encode=workers.run_few)
    parts = sorted((tmp_path / "direct").iterdir())
    assert len(parts) > 5
    assert {part.name: part.read_bytes() for part in parts} == {
        part.name: part.read_bytes() for part in (tmp_path / "merged").iterdir()
    }
    assert sorted(scratch.iterdir()) == runs


def test_a_group_in_a_file_is_the_group_in_memory(tmp_path):
    table = SCHEMA.empty_table()
    held, stored = encode_group(table), encode_group_into(str(tmp_path / "group"), table)
    sinks = io.BytesIO(), io.BytesIO()
    held.move_to(sinks[0])
    stored.move_to(sinks[1])
    assert sinks[0].getvalue() == sinks[1].getvalue()
    assert held.footer == stored.footer
    assert not list(tmp_path.iterdir())


def test_footers_of_other_files_are_taken_apart():
    """Statistics, dictionaries and page indexes have Thrift types that ours lack."""
    table = pa.table({"a": [1, 2, None], "b": [True, False, None], "c": [1.5, None, 2.5], "d": ["x", "y", None]})
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, sorting_columns=[pq.SortingColumn(0)])
    data = sink.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    (group,) = split_footer(footer).groups
    assert group.rows == 3
    assert set(group.places) >= {0, 4}


def test_what_is_no_footer_is_refused():
    with pytest.raises(ValueError, match="no Thrift type 15"):
        split_footer(b"\x1f\x00")
