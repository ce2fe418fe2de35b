"""A conversion that was killed is gone on with; two at once in one folder are refused."""

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from art_otel.engines import Conversion, convert, partition
from art_otel.engines import scratch as scratch_module
from art_otel.engines.scratch import Scratch, open_scratch
from art_otel.errors import UsageError
from tests.benchmarks.dumps import write_conversations
from tests.conversions import convert_files

LOCKED = """
import fcntl, sys
file = open(sys.argv[1], "wb")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dumps") / "in.jsonl"
    write_conversations(path, 150, 8)
    return path


def kill_after_phase_one(dump: Path, out: Path) -> None:
    command = [sys.executable, "-m", "art_otel", "convert", str(dump), "--out", str(out), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not list(out.glob(".art-otel-scratch-*/joined")):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()


def bytes_read(conversion: Conversion) -> int:
    counts: list[int] = []
    convert(Conversion(sources=conversion.sources, out=conversion.out, workers=2, on_bytes=counts.append))
    return sum(counts)


def test_what_was_read_is_not_read_again(dump, tmp_path):
    kill_after_phase_one(dump, tmp_path / "out")
    assert bytes_read(Conversion(sources=[str(dump)], out=tmp_path / "out")) == 0
    convert_files(tmp_path / "alone", dump)
    assert (tmp_path / "out/part-00000.parquet").read_bytes() == (tmp_path / "alone/part-00000.parquet").read_bytes()
    assert not list((tmp_path / "out").glob(".art-otel-scratch*"))


def test_what_was_half_removed_is_not_taken_up(dump, tmp_path):
    kill_after_phase_one(dump, tmp_path / "out")
    (left,) = tmp_path.glob("out/.art-otel-scratch-*")
    (left / "identity").unlink()  # the first that goes when a conversion has ended
    for bucket in left.glob("*/bucket-*"):
        bucket.unlink()
    assert bytes_read(Conversion(sources=[str(dump)], out=tmp_path / "out")) == dump.stat().st_size
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_report.json", "part-00000.parquet"]


def test_a_dump_that_changed_is_read_again(dump, tmp_path):
    changed = tmp_path / "in.jsonl"
    changed.write_bytes(dump.read_bytes())
    kill_after_phase_one(changed, tmp_path / "out")
    with changed.open("ab") as file:
        file.write(b'{"resourceSpans":[]}\n')
    assert bytes_read(Conversion(sources=[str(changed)], out=tmp_path / "out")) == changed.stat().st_size


def test_two_conversions_do_not_write_to_one_folder(dump, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", LOCKED, str(out / ".art-otel-scratch.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="another conversion writes there"):
            convert(Conversion(sources=[str(dump)], out=out))
        other.stdin.close()
    convert_files(out, dump)


def test_a_conversion_from_memory_is_not_taken_up(tmp_path, dump, monkeypatch):
    assert dump.stat().st_size < partition.MEMORY_BUDGET
    kept: list[str] = []
    monkeypatch.setattr(Scratch, "keep", lambda _, name, __: kept.append(name))
    convert_files(tmp_path / "out", dump, workers=1)
    assert "identity" in kept
    assert "joined" not in kept
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_report.json", "part-00000.parquet"]


def test_two_threads_do_not_convert_into_one_folder(tmp_path):
    refused: list[str] = []

    def convert_too() -> None:
        try:
            with open_scratch(tmp_path / "out", None):
                pass
        except UsageError as error:
            refused.append(str(error))

    with open_scratch(tmp_path / "out", None) as scratch:
        thread = threading.Thread(target=convert_too)
        thread.start()
        thread.join()
        assert scratch.folder.exists()
    assert len(refused) == 1
    convert_too()
    assert len(refused) == 1
    assert not list((tmp_path / "out").iterdir())


def test_a_file_system_without_locks_is_converted_on_all_the_same(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(scratch_module.fcntl, "lockf", refuse)
    with open_scratch(tmp_path / "out", None) as scratch:
        assert scratch.folder.exists()
