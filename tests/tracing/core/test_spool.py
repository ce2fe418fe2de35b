"""The spool: whole lines in private files, counted losses, nothing raised, one file a process."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from art_otel.engines import Sizes
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Quarantined, Span
from art_otel.tracing.processing import spool as module
from art_otel.tracing.processing.queued_spool import QueuedSpool
from art_otel.tracing.processing.spool import Spool
from tests.conversions import convert_files
from tests.dumps import make_span, request_of
from tests.tracing.core.spans import Traced

FULL = Path("/dev/full")


def lines(folder: Path) -> list[bytes]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines(keepends=True)]


def test_files_are_private_and_rotated(tmp_path):
    spool = Spool(tmp_path / "a" / "spool", max_file_bytes=100)
    for number in range(10):
        assert spool.write(b"%064d\n" % number)
    files = sorted((tmp_path / "a" / "spool").iterdir())
    assert len(files) == 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "a" / "spool").stat().st_mode) == 0o700
    assert spool.counts.written == 10
    assert lines(tmp_path / "a" / "spool") == [b"%064d\n" % number for number in range(10)]


def test_what_was_written_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spool = Spool(Path("spool"), max_file_bytes=100)
    texts = [b"%064d\n" % number for number in range(10)]
    written = [spool.write(text) for text in texts]
    monkeypatch.chdir("/")
    assert [line.read() for line in written] == texts
    written[0].path.write_bytes(b"cut")
    written[1].path.unlink()
    for line in written[:2]:
        with pytest.raises(OSError, match=r"cut|No such file"):
            line.read()


def test_what_is_queued_can_be_read_before_and_after_it_is_written(tmp_path, monkeypatch):
    slow = threading.Event()
    write = os.write
    monkeypatch.setattr(module.os, "write", lambda file, data: slow.wait() and write(file, data))
    spool = QueuedSpool(Spool(tmp_path))
    texts = [b"line %d\n" % number for number in range(3)]
    queued = [spool.write(text) for text in texts]
    assert [line.read() for line in queued] == texts
    slow.set()
    assert spool.flush()
    assert [line.read() for line in queued] == texts
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(FileNotFoundError):
        queued[0].read()


def test_threads_do_not_mix_lines(tmp_path):
    spool = Spool(tmp_path)
    texts = [bytes([65 + number]) * 10_000 + b"\n" for number in range(8)]
    threads = [threading.Thread(target=lambda text=text: [spool.write(text) for _ in range(20)]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lines(tmp_path)) == sorted(texts * 20)


class FullDisk:
    """os.write as a disk with room for `left` bytes has it."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.write = os.write

    def __call__(self, file: int, data) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self.write(file, data[: self.left])
        self.left -= count
        return count


def test_a_full_disk_costs_whole_lines_and_is_counted(tmp_path, monkeypatch, caplog):
    disk = FullDisk(250)
    monkeypatch.setattr(module.os, "write", disk)
    monkeypatch.setattr(module, "_REST", 0.0)
    spool = Spool(tmp_path, patience=0.01)
    written = [spool.write(b"%063d\n" % number) is not None for number in range(8)]
    assert written == [True] * 3 + [False] * 5
    assert (spool.counts.written, spool.counts.dropped) == (3, 5)
    assert spool.flush() is False
    disk.left = 1 << 20
    assert spool.write(b"%063d\n" % 8)
    assert lines(tmp_path) == [b"%063d\n" % number for number in (0, 1, 2, 8)]
    assert len(list(tmp_path.iterdir())) == 2, "no file that nothing could be written to"
    assert "spans are lost" in caplog.text
    assert "5 lost" in caplog.text


def test_a_disk_that_comes_back_in_time_costs_nothing(tmp_path, monkeypatch):
    disk = FullDisk(0)
    monkeypatch.setattr(module.os, "write", disk)
    threading.Timer(0.2, lambda: setattr(disk, "left", 1 << 20)).start()
    spool = Spool(tmp_path, patience=10)
    assert spool.write(b"line\n")
    assert spool.flush() is True
    assert lines(tmp_path) == [b"line\n"]


def test_a_folder_that_cannot_be_made_costs_spans_and_no_app(tmp_path):
    (tmp_path / "file").write_text("")
    app = Traced(tmp_path, spool=Spool(tmp_path / "file" / "spool", patience=0))
    with app.rollout("agent", "r1"):
        app.call("one")
    assert (app.spool.counts.written, app.spool.counts.dropped) == (0, 4)
    assert app.processor.faults == 0


@pytest.mark.parametrize("late", [True, False])
def test_a_folder_that_is_removed_at_the_end_stays_so(tmp_path, caplog, late):
    spool = Spool(tmp_path / "a" / "spool")
    assert spool.write(b"gone\n")
    time.sleep(0.05)  # the clock of file systems is coarse
    shutil.rmtree(tmp_path / "a")
    if late:
        assert spool.write(b"late\n")
    spool.close()
    assert not (tmp_path / "a").exists()
    assert bool(caplog.text) is late
    assert spool.counts.dropped == 2 * late  # from where it was last looked at


def test_a_folder_that_is_removed_costs_what_was_in_it(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "a" / "spool"
    spool = Spool(folder)
    assert spool.write(b"gone\n")
    assert spool.flush()
    for look in (spool.flush, lambda: monkeypatch.setattr(module, "_LOOK", 0.0)):
        shutil.rmtree(tmp_path / "a")
        assert spool.write(b"after\n")
        look()
        assert spool.write(b"later\n")
        assert lines(folder) == [b"after\n", b"later\n"]
        caplog.clear()
        spool.flush()
    (path,) = folder.iterdir()
    path.unlink()
    assert spool.write(b"at once\n")
    assert lines(folder) == [b"at once\n"]
    assert [record.message for record in caplog.records] == [
        f"art-otel: a file of the spool in {folder} was removed; the next spans go to a new one"
    ]
    assert (spool.counts.written, spool.counts.dropped) == (6, 0)


def test_a_full_file_that_was_removed_costs_what_was_in_it(tmp_path):
    spool = Spool(tmp_path, max_file_bytes=20)
    assert spool.write(b"gone\n")
    assert spool.flush()
    next(tmp_path.iterdir()).unlink()
    assert all(spool.write(b"line %d\n" % number) for number in range(4))
    assert spool.flush()
    assert lines(tmp_path) == [b"line %d\n" % number for number in range(4)]


def test_what_cannot_move_from_a_removed_file_is_counted(tmp_path):
    folder = tmp_path / "a" / "spool"
    spool = Spool(folder, patience=0)
    assert spool.write(b"gone\n")
    assert spool.flush()
    shutil.rmtree(tmp_path / "a")
    assert spool.write(b"after\n")
    (tmp_path / "a").write_text("")
    assert spool.flush() is False
    assert (spool.counts.written, spool.counts.dropped, spool.counts.bytes) == (1, 1, 5)
    spool.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_writes_to_its_own_file(tmp_path):
    code = f"""
import os
from pathlib import Path
from art_otel.tracing.processing.queued_spool import QueuedSpool
from art_otel.tracing.processing.spool import Spool
spool = Spool(Path({str(tmp_path)!r}))
spool.write(b"parent\\n")
if not os.fork():
    spool.write(b"child\\n")
    os._exit(0)
os.wait()
spool.write(b"parent again\\n")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"child\n", b"parent\nparent again\n"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_leaves_its_parent_s_empty_file_alone(tmp_path):
    spool = Spool(tmp_path)
    spool._open()
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(tmp_path.iterdir())) == 1
    spool.close()
    assert list(tmp_path.iterdir()) == []


def spool_of_three(folder: Path) -> Path:
    app = Traced(folder)
    for number in range(3):
        with app.rollout("größer", f"r{number}"):
            app.call(f"question {number}")
    (path,) = (folder / "spool").iterdir()
    return path


@pytest.mark.parametrize("separators", [(",", ":"), None])
def test_a_spool_that_somebody_wrote_anew_is_read(tmp_path, separators):
    path = spool_of_three(tmp_path)
    expected, _ = convert_files(tmp_path / "before", path)
    values = map(json.loads, path.read_bytes().splitlines())
    path.write_text("".join(json.dumps(value, separators=separators) + "\n" for value in values))
    trajectories, report = convert_files(tmp_path / "out", path)
    assert trajectories == expected
    assert report.spans.quarantined == {}
    note = "6 lines read with a checksum that does not match: altered after being written"  # those with the name
    assert report.files[0].note == (note if separators else None)


@pytest.mark.parametrize("split_bytes", [100, 1_000_000])
def test_an_altered_line_that_is_whole_is_read_and_noted(tmp_path, split_bytes):
    path = spool_of_three(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"question 1", b"QUESTION 1"))
    trajectories, report = convert_files(
        tmp_path / "out", path, sizes=Sizes(least_split=split_bytes, most_split=split_bytes), workers=1
    )
    assert report.spans.quarantined == {}
    assert "QUESTION 1" in str(trajectories[1].calls)
    assert all(trajectory.complete for trajectory in trajectories)
    (file,) = report.files
    assert file.note == "1 line read with a checksum that does not match: altered after being written"


@pytest.mark.parametrize(("whole", "broken"), [(b"question 1", b'ques"tion 1'), (b'"resource":{', b'"resource":{{')])
def test_an_altered_line_that_is_not_whole_costs_itself_only(tmp_path, whole, broken):
    path = spool_of_three(tmp_path)
    head, tail = path.read_bytes().split(b"question 1")
    line = head.rindex(b"\n")
    end = tail.index(b"\n")
    altered = (head[line:] + b"question 1" + tail[:end]).replace(whole, broken)
    path.write_bytes(head[:line] + altered + tail[end:])
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "spool")
    assert report.spans.quarantined == {"not JSON": 1}
    assert report.files[0].note is None
    assert [trajectory.complete for trajectory in trajectories] == [True, False, True]
    assert "question 2" in str(trajectories[2].calls)


def test_a_torn_tail_costs_itself_only(tmp_path):
    app = Traced(tmp_path)
    for number in range(2):
        with app.rollout("agent", f"r{number}"):
            app.call("q")
    (path,) = (tmp_path / "spool").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    records = list(read_file(find_inputs([path])[0], FileStats()))
    assert sum(isinstance(record, Span) for record in records) + sum(isinstance(r, Quarantined) for r in records) == 8


def test_the_queue_never_waits_and_counts_what_it_drops(tmp_path, monkeypatch):
    slow = threading.Event()
    write = os.write
    monkeypatch.setattr(module.os, "write", lambda file, data: slow.wait() and write(file, data))
    spool = QueuedSpool(Spool(tmp_path), max_lines=5)
    taken = [spool.write(b"line\n") is not None for _ in range(20)]
    assert taken.count(True) in (5, 6)  # one may be with the thread already
    assert spool.flush(0.05) is False
    slow.set()
    spool.close()
    assert spool.counts.written == taken.count(True)
    assert spool.counts.dropped == taken.count(False)
    assert lines(tmp_path) == [b"line\n"] * taken.count(True)


def test_a_thread_that_hangs_does_not_hang_the_others(tmp_path, monkeypatch):
    hangs = threading.Event()
    write = os.write
    monkeypatch.setattr(module, "_REST", 0.01)
    monkeypatch.setattr(module.os, "write", lambda file, data: hangs.wait() and write(file, data))
    spool = Spool(tmp_path, patience=0.01)
    first = threading.Thread(target=spool.write, args=(b"first\n",))
    first.start()
    while not spool._lock.locked():
        pass
    assert spool.write(b"second\n") is None
    hangs.set()
    first.join()
    assert (spool.counts.written, spool.counts.dropped) == (1, 1)


def test_lines_of_others_need_no_checksum(tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({**request_of(make_span(1)), "crc32": "zzzzzzzz"}) + "\n")
    (record,) = read_file(find_inputs([tmp_path])[0], FileStats())
    assert isinstance(record, Span)
