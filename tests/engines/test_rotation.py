"""Incremental conversions lose and double nothing of rotated logs, however and wherever these are rotated and torn."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel import read_trajectories
from art_otel.engines import Conversion, Times
from art_otel.engines.incremental import follow
from tests.conversions import convert_files
from tests.dumps import chat_span, request_of
from tests.examples import examples

LONG = {"service.name": "app", "process.command_args": "x" * 2_000}
"""More bytes than a file is known by, equal at the beginning of all files."""


def line(number: int, resource: dict | None = None) -> bytes:
    """The line of a trace; all are of one length."""
    span = chat_span(1, None, [f"question {number:04}"], f"answer {number:04}", trace=number)
    return json.dumps(request_of(span, resource=resource)).encode() + b"\n"


def lines(*numbers: int, resource: dict | None = None) -> bytes:
    return b"".join(line(number, resource) for number in numbers)


class Log:
    """A log that a process writes to and a program rotates, and the dataset that is made of it again and again."""

    def __init__(self, folder: Path, resource: dict | None) -> None:
        self.folder, self.out, self.resource = folder / "in", folder / "out", resource
        self.folder.mkdir()
        self.file = self.torn_file = self.folder / "traces.jsonl"
        self.rest_of_line = b""
        self.written = self.rotations = 0

    def append(self) -> None:
        self.complete()
        self.write(self.file, self.new_line())

    def tear(self) -> None:
        self.complete()
        whole = self.new_line()
        self.write(self.file, whole[: len(whole) // 2])
        self.torn_file, self.rest_of_line = self.file, whole[len(whole) // 2 :]

    def complete(self) -> None:
        if self.rest_of_line:
            self.write(self.torn_file, self.rest_of_line)
            self.rest_of_line = b""

    def new_line(self) -> bytes:
        self.written += 1
        return line(self.written, self.resource)

    def write(self, path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            file.write(data)

    def rename(self) -> None:
        """The writer completes a torn line in the renamed file."""
        self.rotations += 1
        renamed = self.folder / f"traces-{self.rotations}.jsonl"
        if self.file.exists():
            self.file.rename(renamed)
            self.torn_file = renamed if self.torn_file == self.file else self.torn_file

    def copy_and_truncate(self) -> None:
        self.complete()
        self.rotations += 1
        if self.file.exists():
            shutil.copyfile(self.file, self.folder / f"traces-{self.rotations}.jsonl")
            self.file.write_bytes(b"")

    def number_anew(self) -> None:
        """Give every rotated file another name, as logrotate does."""
        self.complete()
        for path in sorted(self.folder.glob("traces-*"), reverse=True):
            name, suffix = path.name.split(".", 1)
            self.rotations += 1
            path.rename(self.folder / f"{name}x{self.rotations}.{suffix}")

    def compress(self) -> None:
        self.complete()
        for path in sorted(self.folder.glob("traces-*.jsonl"))[:1]:
            compress, suffix = (gzip.compress, "gz") if self.rotations % 2 else (zstandard.compress, "zst")
            path.with_name(f"{path.name}.{suffix}").write_bytes(compress(path.read_bytes()))
            path.unlink()

    def replace(self) -> None:
        """Put another file in the place of the log, of its size."""
        self.complete()
        self.convert()
        if self.file.exists():
            count = self.file.stat().st_size // len(line(1, self.resource))
            self.file.write_bytes(b"".join(self.new_line() for _ in range(count)))

    def convert(self) -> None:
        times = Times(grace=0.0)
        _, report = convert_files(self.out, self.folder, incremental=True, times=times, workers=1)
        assert report.spans.quarantined == {}


OPERATIONS = [Log.append, Log.append, Log.tear, Log.rename, Log.copy_and_truncate, Log.number_anew, Log.compress]
ROTATIONS = st.lists(st.sampled_from([*OPERATIONS, Log.replace, Log.convert, Log.convert]), max_size=25)


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=ROTATIONS, resource=st.sampled_from([None, LONG]))
def test_every_line_is_one_row_however_its_file_is_rotated(operations, resource, tmp_path_factory):
    log = Log(tmp_path_factory.mktemp("log"), resource)
    for operation in [Log.append, *operations]:
        operation(log)
    log.complete()
    log.convert()
    rows = list(read_trajectories(log.out))
    assert sorted(int(row.trace_id, 16) for row in rows) == list(range(1, log.written + 1))
    assert {row.revision for row in rows} == {0}  # what is read again under another name changes nothing


def convert(folder: Path):
    times = Times(grace=0.0)
    rows, report = convert_files(folder / "out", folder / "in", incremental=True, times=times, workers=1)
    return sorted(int(row.trace_id, 16) for row in rows), report


def make_quiet(path: Path) -> None:
    os.utime(path, (1, 1))


def test_the_torn_last_line_of_a_rotated_file_is_set_aside_when_nobody_writes_any_more(tmp_path):
    file = tmp_path / "in" / "traces.jsonl"
    file.parent.mkdir()
    file.write_bytes(lines(1, 2)[:-50])
    assert convert(tmp_path)[0] == [1]
    rotated = file.rename(file.with_name("old.jsonl"))
    file.write_bytes(lines(3))
    assert convert(tmp_path)[0] == [1, 3]
    make_quiet(rotated)
    rows, report = convert(tmp_path)
    assert (rows, report.spans.quarantined) == ([1, 3], {"torn": 1})
    assert "old.jsonl:2" in report.quarantine[0].path
    rotated.write_bytes(lines(1, 2, 4))  # the line goes on after all
    assert convert(tmp_path)[0] == [1, 2, 3, 4]


def test_a_line_that_is_torn_by_copy_and_truncate_costs_itself_and_is_named(tmp_path):
    file = tmp_path / "in" / "traces.jsonl"
    file.parent.mkdir()
    file.write_bytes(lines(1, 2)[:-50])
    assert convert(tmp_path)[0] == [1]
    shutil.copyfile(file, file.with_name("old.jsonl"))
    make_quiet(file.with_name("old.jsonl"))
    file.write_bytes(lines(2)[-50:] + lines(3))
    rows, report = convert(tmp_path)
    assert rows == [1, 3]
    places = {Path(entry.path.split(" ")[0]).name for entry in report.quarantine}
    assert places == {"old.jsonl:2", "traces.jsonl:1"}


@pytest.mark.parametrize(
    "replaced", [lines(7, 8, 9), lines(7), lines(7, 8, 9, 10)], ids=["equal size", "shorter", "longer"]
)
def test_what_was_replaced_and_is_nowhere_else_is_said(tmp_path, replaced):
    file = tmp_path / "in" / "traces.jsonl"
    file.parent.mkdir()
    file.write_bytes(lines(1, 2, 3))
    convert(tmp_path)
    file.write_bytes(replaced)
    rows, report = convert(tmp_path)
    assert rows == [1, 2, 3, *range(7, 7 + replaced.count(b"\n"))]
    assert "was replaced, or changed before its end" in report.files[0].note
    assert convert(tmp_path)[1].spans.read == 0


def test_a_file_that_is_no_lines_is_read_again_when_it_changes(tmp_path):
    file = tmp_path / "in" / "traces.jsonl.gz"
    file.parent.mkdir()
    for numbers in ((1,), (1, 2), (3, 4)):
        file.write_bytes(gzip.compress(lines(*numbers), mtime=0))
        os.utime(file, (numbers[0], numbers[-1]))
        convert(tmp_path)
    assert convert(tmp_path)[0] == [1, 2, 3, 4]


def test_a_file_that_is_rotated_while_it_is_converted_is_read_once_more_and_nothing_is_lost(tmp_path):
    file = tmp_path / "in" / "traces.jsonl"
    file.parent.mkdir()
    file.write_bytes(lines(1, 2))

    def rotate(_: int | None) -> None:
        file.rename(file.with_name("old.jsonl"))
        file.write_bytes(lines(3, 4, 5))

    times = Times(grace=0.0)
    convert_files(tmp_path / "out", file.parent, incremental=True, times=times, workers=1, on_start=rotate)
    assert convert(tmp_path)[0] == [1, 2, 3, 4, 5]


def test_who_follows_waits_for_a_compressed_file_that_is_being_written(tmp_path):
    file, reports = tmp_path / "in" / "traces.jsonl.gz", []
    file.parent.mkdir()
    file.write_bytes(gzip.compress(lines(1)))
    for _ in range(2):
        follow(
            Conversion(sources=[str(file.parent)], out=tmp_path / "out", times=Times(grace=0.0)),
            every=0.0,
            tell=reports.append,
            warn=pytest.fail,
            rounds=1,
        )
        make_quiet(file)
    assert [report.spans.read for report in reports] == [0, 1]
