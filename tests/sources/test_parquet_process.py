"""The process that reads Parquet: when it cannot start, has no room or dies, that is told and nothing is raised."""

import pytest

from art_otel.errors import SourceError
from art_otel.sources import FileAccount, find_inputs, read_file
from art_otel.sources.files.parquet_process import ParquetProcess
from tests.sources.requests import read_bytes, standard_input
from tests.sources.writers.parquet import EXPORTS

CLICKHOUSE = EXPORTS / "clickhouse_otel_traces.parquet"


def test_a_process_that_dies_is_told(tmp_path):
    (tmp_path / "x.parquet").write_bytes(CLICKHOUSE.read_bytes())
    problems = []
    with (tmp_path / "x.parquet").open("rb") as file, ParquetProcess(file, "x", 800 << 20, problems.append) as rows:
        assert rows.read(10)
        rows._process.kill()
        while rows.read(1 << 20):
            pass
        assert rows.read(10) == b""
    (failure,) = problems
    assert (failure.reason, failure.place) == ("torn", "")
    assert "ended with -9" in failure.detail


def test_no_temporary_files(tmp_path, monkeypatch):
    (source,) = find_inputs(["-"])
    with standard_input(CLICKHOUSE.read_bytes()):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
        with pytest.raises(SourceError, match=r"<stdin>: no temporary file"):
            list(read_file(source, FileAccount()))
    with pytest.raises(SourceError, match=r"in\.dump: no temporary file to read it with .*; make room or set TMPDIR"):
        read_bytes(tmp_path, CLICKHOUSE.read_bytes())


def test_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "no python"))
    with pytest.raises(SourceError, match=r"in\.dump: no process can be started to read it"):
        read_bytes(tmp_path, CLICKHOUSE.read_bytes())
