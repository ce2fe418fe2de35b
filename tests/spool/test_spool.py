"""The spool: whole lines in private files, counted losses, nothing raised, a file a process, a folder a run."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.spool import NewLines, SpoolWriter, run_folder, writer
from tests.tracing.sdk.spans import Traced


def lines(folder: Path) -> list[bytes]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines(keepends=True)]


def test_files_are_private_and_rotated_and_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spool = SpoolWriter(Path("a", "spool"), max_file_bytes=100)
    texts = [b"%049d\n" % number for number in range(10)]  # two fill a file
    written = [spool.write(text) for text in texts]
    monkeypatch.chdir("/")
    folder = tmp_path / "a" / "spool"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (spool.counts.written, len(list(folder.iterdir())), lines(folder)) == (10, 5, texts)
    assert [line.read() for line in written] == texts
    first, second, *_ = sorted(folder.iterdir())
    first.write_bytes(b"cut")
    second.unlink()
    with pytest.raises(OSError, match="cut"):
        written[0].read()
    assert written[2].read() == texts[2], "who holds a line has it"


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_a_file_is_open_as_long_as_somebody_holds_a_line_of_it(tmp_path):
    before = open_files()
    spool = SpoolWriter(tmp_path / "spool", max_file_bytes=100)
    written = [spool.write(b"%064d\n" % number) for number in range(10)]
    assert (open_files(), [line.read() for line in written[:2]]) == (before + 10, [b"%064d\n" % 0, b"%064d\n" % 1])
    del written[3:]
    assert open_files() == before + 4, "and the one that is written to"
    spool.close()
    assert (spool.flush(), open_files()) == (True, before + 3)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 10
    written.clear()
    assert open_files() == before


def test_threads_do_not_mix_lines(tmp_path):
    spool = SpoolWriter(tmp_path)
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
    monkeypatch.setattr(writer.os, "write", disk)
    spool = SpoolWriter(tmp_path)
    written = [spool.write(b"%063d\n" % number) is not None for number in range(8)]
    assert written == [True] * 3 + [False] * 5
    assert (spool.counts.written, spool.counts.dropped, spool.flush()) == (3, 5, False)
    disk.left = 1 << 20
    assert spool.write(b"too early\n") is None
    monkeypatch.setattr(writer, "_PAUSE", 0.0)
    assert spool.write(b"%063d\n" % 8)
    assert lines(tmp_path) == [b"%063d\n" % number for number in (0, 1, 2, 8)]
    assert len(list(tmp_path.iterdir())) == 2, "no file that nothing could be written to"
    assert "spans are lost" in caplog.text
    assert "6 lines were lost" in caplog.text


def test_ctrl_c_in_a_write_leaves_no_half_a_line(tmp_path, monkeypatch):
    spool, write = SpoolWriter(tmp_path), os.write

    def interrupted(descriptor: int, data) -> int:
        write(descriptor, bytes(data)[:3])
        raise KeyboardInterrupt

    assert spool.write(b"first\n") is not None
    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spool.write(b"second\n")
    monkeypatch.undo()
    assert spool.write(b"third\n") is not None
    assert b"".join(line.text for line in NewLines(tmp_path).take()) == b"first\nthird\n"


def test_no_span_is_said_to_be_lost_that_its_sender_keeps(tmp_path, monkeypatch, caplog):
    disk = FullDisk(0)
    monkeypatch.setattr(writer.os, "write", disk)
    monkeypatch.setattr(writer, "_PAUSE", 0.0)
    spool = SpoolWriter(tmp_path, sent_again=True)
    assert spool.write(b"export\n") is None
    disk.left = 1 << 20
    assert spool.write(b"export\n")
    assert "lost" not in caplog.text
    refused, again = [record.getMessage() for record in caplog.records]
    assert "exports are refused, and their senders will send them again" in refused
    assert again.endswith("1 exports were refused")


def test_a_folder_that_cannot_be_made_costs_spans_and_no_app(tmp_path):
    (tmp_path / "file").write_text("")
    app = Traced(tmp_path, spool=SpoolWriter(tmp_path / "file" / "spool"))
    with app.rollout("agent", "r1"):
        app.call("one")
    assert (app.spool.counts.written, app.spool.counts.dropped) == (0, 4)
    assert app.processor.faults == 0


def test_a_folder_that_is_removed_costs_what_was_in_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(writer, "_PAUSE", 0.0)
    spool = SpoolWriter(tmp_path / "a")
    assert spool.write(b"gone\n")
    shutil.rmtree(tmp_path / "a")
    assert spool.write(b"later\n")
    assert lines(tmp_path / "a") == [b"later\n"]
    assert "was deleted, and its spans are lost" in caplog.text
    shutil.rmtree(tmp_path / "a")
    spool.close()
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_writes_to_its_own_file_and_leaves_its_parent_s(tmp_path):
    code = f"""
import os
from pathlib import Path
from art_otel.spool import SpoolWriter
spool, empty = SpoolWriter(Path({str(tmp_path)!r}, "a")), SpoolWriter(Path({str(tmp_path)!r}, "b"))
spool.write(b"parent\\n")
empty._open()
if not os.fork():
    spool.write(b"child\\n")
    os._exit(0)
os.wait()
spool.write(b"parent again\\n")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sorted(path.read_bytes() for path in (tmp_path / "a").iterdir()) == [b"child\n", b"parent\nparent again\n"]
    assert len(list((tmp_path / "b").iterdir())) == 1


def test_a_thread_that_hangs_does_not_hang_the_others(tmp_path, monkeypatch):
    hangs = threading.Event()
    write = os.write
    monkeypatch.setattr(writer, "_LONGEST_WAIT", 0.01)
    monkeypatch.setattr(writer.os, "write", lambda file, data: hangs.wait() and write(file, data))
    spool = SpoolWriter(tmp_path)
    first = threading.Thread(target=spool.write, args=(b"first\n",))
    first.start()
    while not spool._lock.locked():
        pass
    assert spool.write(b"second\n") is None
    hangs.set()
    first.join()
    assert (spool.counts.written, spool.counts.dropped) == (1, 1)


def test_a_run_has_one_folder_also_in_processes_that_it_starts(tmp_path, monkeypatch):
    monkeypatch.delenv("ART_OTEL_RUN", raising=False)
    folder = run_folder(tmp_path)
    assert folder.parent == tmp_path
    code = (
        f"from pathlib import Path; from art_otel.spool import run_folder; print(run_folder(Path({str(tmp_path)!r})))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == str(folder)
    monkeypatch.setenv("ART_OTEL_RUN", "../up")
    assert run_folder(tmp_path) == tmp_path / "up"


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=9))))
def test_new_lines_are_taken_once_and_whole(tmp_path_factory, writes):
    folder = tmp_path_factory.mktemp("spool")
    new, taken = NewLines(folder), []
    for file, data in writes:
        with (folder / f"{file}.otlp.jsonl").open("ab") as spool:
            spool.write(data)
        taken += new.take()
    whole = [line for path in folder.iterdir() for line in path.read_bytes().split(b"\n")[:-1]]
    assert sorted(line.text for line in taken) == sorted(line + b"\n" for line in whole)
    assert all(line.location.read() == line.text for line in taken)
    assert list(new.take()) == []
