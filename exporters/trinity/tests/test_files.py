"""Files of experiences: payloads hold a task each, a database a row an experience."""

import os
import pickle
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from art_otel.errors import UsageError
from art_otel.exporting import ExportStats, export
from art_otel_trinity import EXPORTER
from art_otel_trinity.database import DatabaseConfig
from art_otel_trinity.experiences import encode_experiences
from art_otel_trinity.payloads import encode_payloads
from exporters.trinity.tests.test_experiences import CALLS, credited
from tests.exporting.samples import TRACE, conversation, group, samples, without_logprobs

TESTDATA = Path(__file__).parent.parent / "testdata"


def decoded(data: bytes) -> tuple[dict, dict]:
    assert data[:4] == b"TRXP"
    version, fields, arrays = struct.unpack("<BQQ", data[4:21])
    assert version == 1
    assert len(data) == 21 + fields + arrays
    return pickle.loads(data[21 : 21 + fields]), load(data[21 + fields :])


def test_a_payload_holds_a_task_whatever_stood_between_its_runs():
    other = conversation("r-other", "Rain.", 1.0, group_id="h")
    alone = conversation("r-alone", "Rain.", 1.0, group_id=None, training_step=None)
    first, second, third = group()
    items = credited([first, other, second, alone, third])
    files = dict(encode_payloads(iter(items), CALLS, ExportStats()))
    assert list(files) == [f"payloads/{number:06d}.trxp" for number in range(3)]
    told = [[item["eid"] for item in decoded(data)[0]["items"]] for data in files.values()]
    assert [(eid["task"], eid["run"], eid["step"]) for eid in told[0]] == [
        ("g", run, step) for run in range(3) for step in range(2)
    ]
    assert [(eid["task"], eid["run"]) for eid in told[1]] == [("h", 0), ("h", 0)]
    assert [(eid["batch"], eid["task"]) for eid in told[2]] == [("", f"rollout r-alone of trace {TRACE}")] * 2


@pytest.mark.parametrize("table", ["select", "order", "a"])
def test_any_plain_name_can_be_that_of_the_table(tmp_path, table):
    export(group(), EXPORTER, tmp_path / "x.db", options={"table": table})
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        assert database.execute(f'SELECT count(*) FROM "{table}"').fetchone() == (3,)
        indexes = database.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert (f"ix_{table}_task_id",) in indexes


@pytest.mark.parametrize("table", ["sqlite_x", "SQLite_x", "experience_buffer\n", "a b", "", "1a", 'a"b', "é"])
def test_names_that_no_table_can_have_are_refused(tmp_path, table):
    with pytest.raises(UsageError, match="table"):
        export(group(), EXPORTER, tmp_path / "x.db", options={"table": table})
    assert not list(tmp_path.iterdir())


def rows(path: Path, table="experience_buffer"):
    with closing(sqlite3.connect(path)) as database:
        return list(database.execute(f"SELECT * FROM {table}"))


def test_the_database_has_a_row_an_experience(tmp_path):
    report = export(group(), EXPORTER, tmp_path / "x.db", options={"table": "mine"})
    assert (report.records, report.trajectories_used) == (3, 3)
    assert [row[2:] for row in rows(tmp_path / "x.db", "mine")] == [
        ("g", run, f"{2:016x}", 7, reward, 0) for run, reward in enumerate((1.0, 0.5, 0.0))
    ]
    blobs = rows(tmp_path / "x.db", "mine_blob")
    assert [number for number, _ in blobs] == [1, 2, 3]
    fields, arrays = decoded(blobs[0][1])
    assert fields["num_items"] == 1
    assert arrays["0:tokens"].dtype == np.int32
    assert {path.name for path in tmp_path.iterdir()} == {"x.db", "x.db.report.json"}


def test_no_rewards_no_advantages_no_experiences_left_out(tmp_path):
    unranked = {"advantage": None}
    export([without_logprobs()], EXPORTER, tmp_path / "x.db", options={"without_logprobs": "keep"}, **unranked)
    ((_, blob),) = rows(tmp_path / "x.db", "experience_buffer_blob")
    assert set(decoded(blob)[1]) == {"0:tokens", "0:action_mask"}


def test_an_export_that_breaks_leaves_the_old_file(tmp_path):
    export(group(), EXPORTER, tmp_path / "x.db")
    before = (tmp_path / "x.db").read_bytes()
    file_format = EXPORTER.formats[0]

    def broken():
        yield from encode_experiences(iter(credited(group())), DatabaseConfig(), ExportStats())
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        file_format.sink(DatabaseConfig()).write(broken(), tmp_path / "x.db")
    assert (tmp_path / "x.db").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"x.db", "x.db.report.json"}


@pytest.mark.parametrize("table", ["", "a b", 'x"; DROP TABLE y', "1st"])
def test_a_table_has_a_plain_name(tmp_path, table):
    with pytest.raises(UsageError, match="table"):
        export(group(), EXPORTER, tmp_path / "x.db", options={"table": table})


def test_golden(tmp_path):
    export(samples(), EXPORTER, tmp_path / "x.db", allow_incomplete=True)
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        check(TESTDATA / "experiences.sql", "\n".join(database.iterdump()).encode() + b"\n")
    export(group(), EXPORTER, tmp_path / "out", format="payloads", options={"unit": "call"})
    check(TESTDATA / "payload.trxp", (tmp_path / "out" / "payloads" / "000000.trxp").read_bytes())


def check(golden: Path, data: bytes) -> None:
    if os.environ.get("ART_OTEL_GOLDEN"):
        golden.write_bytes(data)
    assert data == golden.read_bytes(), f"{golden}: ART_OTEL_GOLDEN=1 writes it anew; look at what changed"
