"""A conversion that was killed is gone on with; two at once in one folder are refused."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from art_otel.engines import Conversion, convert, local, partition
from art_otel.engines import scratch as scratch_module
from art_otel.engines.buckets import read_bucket
from art_otel.engines.scratch import Scratch, identity_of, open_scratch
from art_otel.engines.workers import Workers
from art_otel.errors import SourceError, UsageError
from art_otel.sources import Limits, find_inputs
from art_otel.trajectories import Account
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


def begin(dump: Path, out: Path, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "art_otel", "convert", str(dump), "--out", str(out), "--workers", "2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


def after_phase_one(dump: Path, out: Path) -> subprocess.Popen:
    process = begin(dump, out)
    while not list(out.glob(".art-otel-scratch-*/joined")):
        assert process.poll() is None
        time.sleep(0.001)
    return process


def kill_after_phase_one(dump: Path, out: Path) -> None:
    process = after_phase_one(dump, out)
    process.kill()
    process.communicate()


def interrupt(dump: Path, out: Path, *, assembled: bool) -> Path:
    """Phase one, and both where `assembled`, of a conversion that is interrupted then; its scratch folder."""
    conversion = Conversion(sources=[str(dump)], out=out, workers=2)
    inputs = find_inputs(conversion.sources)
    with (
        suppress(KeyboardInterrupt),
        open_scratch(out, identity_of(inputs, partial(local._settings, conversion))) as scratch,
        Workers(2) as workers,
    ):
        joined = local._divide(inputs, conversion, scratch, workers)
        if assembled:
            list(workers.run(local._assemble, local._buckets(joined, conversion, scratch)))
        raise KeyboardInterrupt
    return scratch.folder


def assert_gone_on(dump: Path, out: Path, alone: Path, *, reads: int) -> None:
    """The next conversion reads so many bytes, gives the dataset of an undisturbed one and leaves nothing behind."""
    assert bytes_read(Conversion(sources=[str(dump)], out=out)) == reads
    convert_files(alone, dump)
    names = ("_report.json", "part-00000.parquet")
    assert sorted(path.name for path in out.iterdir()) == [*names]
    for name in names:
        assert (out / name).read_bytes() == (alone / name).read_bytes()


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


@pytest.mark.parametrize("how", ["a worker is killed", "Ctrl-C"])
def test_a_checkpoint_outlives_what_ends_a_conversion(dump, tmp_path, how):
    process = after_phase_one(dump, tmp_path / "out")
    if how == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    else:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode != 0, errors
    assert_gone_on(dump, tmp_path / "out", tmp_path / "alone", reads=0)


def test_a_checkpoint_outlives_a_full_disk(dump, tmp_path):
    left = interrupt(dump, tmp_path / "measured", assembled=False)
    room = int(1.1 * max(path.stat().st_size for path in left.rglob("bucket-*")))  # a run takes more than a bucket
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
    process = begin(dump, tmp_path / "out", preexec_fn=limit)
    _, errors = process.communicate()
    assert b"File too large" in errors
    assert process.returncode == 1
    assert_gone_on(dump, tmp_path / "out", tmp_path / "alone", reads=0)


@pytest.mark.parametrize("assembled", [False, True])
@pytest.mark.parametrize("damage", ["nothing", "gone", "empty", "half", "a bit"])
def test_work_that_is_not_as_it_was_is_done_anew(dump, tmp_path, assembled, damage):
    left = interrupt(dump, tmp_path / "out", assembled=assembled)
    files = list(left.glob("run-?????" if assembled else "*/bucket-*"))
    assert files
    for file in files:
        body = file.read_bytes()
        if damage == "gone":
            file.unlink()
        elif damage == "empty":
            file.write_bytes(b"")
        elif damage == "half":
            file.write_bytes(body[: len(body) // 2])
        elif damage == "a bit":
            file.write_bytes(body[:-9] + bytes([body[-9] ^ 1]) + body[-8:])
    reads = 0 if damage == "nothing" else dump.stat().st_size
    assert_gone_on(dump, tmp_path / "out", tmp_path / "alone", reads=reads)


def test_a_checkpoint_without_any_use_is_removed(tmp_path):
    (tmp_path / "in.jsonl").write_text("nothing that anybody knows")
    with pytest.raises(SourceError, match="no known format"):
        convert(Conversion(sources=[str(tmp_path / "in.jsonl")], out=tmp_path / "out", workers=2))
    assert list((tmp_path / "out").iterdir()) == []


def test_nothing_is_left_of_a_conversion_that_ends_before_its_checkpoint(tmp_path):
    with suppress(KeyboardInterrupt), open_scratch(tmp_path / "out", b"a conversion") as scratch:
        scratch.keep("run-00000.account", Account())
        raise KeyboardInterrupt
    assert list((tmp_path / "out").iterdir()) == []


def test_a_task_that_runs_again_in_its_folder_doubles_nothing(dump, tmp_path):
    first, again = (
        partition.partition_spans(find_inputs([str(dump)]), tmp_path / "task", 3, Limits()) for _ in range(2)
    )
    assert sum(1 for content in again.contents for _ in read_bucket(content)) == again.counts.spans > 0
    assert again.contents == first.contents


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
