"""A conversion that was ended in any way goes on where it was, and trusts only what its checksums prove."""

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from art_otel.engines import Conversion, Sizes, convert
from art_otel.engines.run import open_workspace
from art_otel.errors import SourceError, UsageError
from tests.benchmarks.dumps import write_conversations
from tests.conversions import convert_files
from tests.examples import kills

SIZES = Sizes(least_split=4 << 20, most_split=4 << 20, partition_bytes=1 << 20, part_bytes=1 << 20)
PROGRAM = textwrap.dedent("""
    import sys
    from art_otel.engines import Conversion, Sizes, convert
    from tests.engines.test_resume import SIZES
    convert(Conversion(sources=[sys.argv[1]], out=sys.argv[2], workers=2, sizes=SIZES))
""")
KILLS = kills(6)
"""Of the parent, and of a worker, at random moments."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dumps") / "in.jsonl"
    write_conversations(path, 80, 8)
    return path


@pytest.fixture(scope="module")
def undisturbed(dump, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed")
    convert_files(out, dump, sizes=SIZES, workers=1)
    return contents(out)


def contents(out: Path) -> dict[str, bytes]:
    """The parts, and all else but the report and what a killed conversion leaves."""
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file() and not is_left(path)}


def is_left(path: Path) -> bool:
    return path.name == "_report.json" or path.name.startswith((".art-otel", "_pending"))


def begin(dump: Path, out: Path, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(dump), str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


def done(out: Path, task: str) -> list[Path]:
    """The summaries of this kind of task."""
    return [path for path in out.glob(f".art-otel-scratch-*/{task}-*") if path.suffix != ".tmp"]


def until(process: subprocess.Popen, out: Path, task: str, count: int) -> None:
    while len(done(out, task)) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.001)


def worker_of(process: subprocess.Popen) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[-1])


def assert_goes_on(dump: Path, out: Path, undisturbed: dict[str, bytes]) -> None:
    convert_files(out, dump, sizes=SIZES, workers=2)
    assert contents(out) == undisturbed
    assert len(list(out.iterdir())) == 1 + len(undisturbed)


@pytest.mark.kill
@pytest.mark.parametrize("task", ["read_split", "assemble"])
@pytest.mark.parametrize("how", ["the parent is killed", "a worker is killed", "Ctrl-C"])
def test_it_goes_on_whatever_ended_it(dump, tmp_path, undisturbed, task, how):
    out = tmp_path / "out"
    process = begin(dump, out)
    until(process, out, task, 2)
    if how == "a worker is killed":
        os.kill(worker_of(process), signal.SIGKILL)
    else:
        process.send_signal(signal.SIGKILL if how == "the parent is killed" else signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode != 0, errors
    assert len(done(out, task)) >= 2
    assert_goes_on(dump, out, undisturbed)


@pytest.mark.long
def test_what_was_read_is_not_read_again(dump, tmp_path, undisturbed):
    copy = tmp_path / "in.jsonl"
    copy.write_bytes(dump.read_bytes())
    process = begin(copy, tmp_path / "out")
    until(process, tmp_path / "out", "assemble", 1)
    process.kill()
    process.communicate()
    times = copy.stat()
    copy.write_bytes(copy.read_bytes().replace(b"You are helpful", b"You are careful"))  # nobody looks into it
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert_goes_on(copy, tmp_path / "out", undisturbed)


@pytest.mark.kill
@pytest.mark.parametrize("damage", ["gone", "empty", "half", "a bit", "swapped"])
@pytest.mark.parametrize("what", ["shuffle", "part"])
def test_what_is_not_as_it_was_is_made_anew(dump, tmp_path, undisturbed, what, damage):
    out = tmp_path / "out"
    process = begin(dump, out)
    until(process, out, "assemble", 3)
    process.kill()
    process.communicate()
    files = sorted(file for file in out.glob(f".art-otel-scratch-*/{what}-*") if file.stat().st_size > 9)
    bodies = [file.read_bytes() for file in files]
    assert len(bodies) > 1
    for file, body, other in zip(files, bodies, bodies[1:] + bodies[:1], strict=True):
        if damage == "gone":
            file.unlink()
        else:
            damaged = {"empty": b"", "half": body[: len(body) // 2], "swapped": other}
            file.write_bytes(damaged.get(damage, body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]))
    assert_goes_on(dump, out, undisturbed)


@pytest.mark.kill
def test_a_full_disk_leaves_what_was_done(dump, tmp_path, undisturbed):
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (300_000, 300_000))
    process = begin(dump, tmp_path / "out", preexec_fn=limit)
    _, errors = process.communicate()
    assert b"File too large" in errors
    assert process.returncode == 1
    assert_goes_on(dump, tmp_path / "out", undisturbed)


@pytest.mark.kill
@pytest.mark.parametrize("of", ["parent", "worker"])
def test_killed_at_random_moments_it_ends_as_if_it_were_not(dump, tmp_path, undisturbed, of):
    chance, out = Random(0), tmp_path / "out"
    for _ in range(KILLS):
        process = begin(dump, out)
        time.sleep(chance.uniform(0.3, 3.0))
        with suppress(OSError, IndexError, ProcessLookupError):
            os.kill(process.pid if of == "parent" else worker_of(process), signal.SIGKILL)
        process.communicate()
        assert not out.exists() or contents(out).items() <= undisturbed.items()
    assert_goes_on(dump, out, undisturbed)


@pytest.mark.kill
def test_other_sources_take_up_nothing(dump, tmp_path, undisturbed):
    process = begin(dump, tmp_path / "out")
    until(process, tmp_path / "out", "read_split", 1)
    process.kill()
    process.communicate()
    longer = tmp_path / "in.jsonl"
    longer.write_bytes(dump.read_bytes() + b'{"resourceSpans":[]}\n')
    assert_goes_on(longer, tmp_path / "out", undisturbed)


@pytest.mark.long
def test_a_part_that_somebody_removed_is_there_again_after_the_same_conversion(dump, tmp_path, undisturbed):
    convert_files(tmp_path / "out", dump, sizes=SIZES, workers=2)
    next(tmp_path.glob("out/part-*")).unlink()
    assert_goes_on(dump, tmp_path / "out", undisturbed)


def test_sources_that_cannot_be_read_leave_nothing(tmp_path):
    (tmp_path / "in.jsonl").write_text("nothing that anybody knows")
    with pytest.raises(SourceError, match="no known format"):
        convert(Conversion(sources=[str(tmp_path / "in.jsonl")], out=tmp_path / "out", workers=2))
    assert list((tmp_path / "out").iterdir()) == []


def test_two_conversions_do_not_write_to_one_folder(tmp_path):
    refused: list[str] = []

    def convert_too() -> None:
        try:
            with open_workspace(str(tmp_path), None):
                pass
        except UsageError as error:
            refused.append(str(error))

    with open_workspace(str(tmp_path), None) as workspace:
        thread = threading.Thread(target=convert_too)
        thread.start()
        thread.join()
        assert Path(workspace.folder).exists()
    assert len(refused) == 1
    assert "another process writes there" in refused[0]
    convert_too()
    assert len(refused) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_locks_is_an_error(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(UsageError, match="grants no lock"), open_workspace(str(tmp_path), None):
        pass
