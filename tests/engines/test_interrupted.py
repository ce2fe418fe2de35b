"""A conversion that was ended in any way leaves the dataset as it was; the next removes what is left of it."""

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
from art_otel.engines.run import scratch_folder
from art_otel.errors import SourceError, UsageError
from tests.benchmarks.dumps import write_conversations
from tests.conversions import convert_files
from tests.examples import kills

SIZES = Sizes(least_split=4 << 20, most_split=4 << 20, partition_bytes=1 << 20, part_bytes=1 << 20)
PROGRAM = textwrap.dedent("""
    import sys
    from art_otel.engines import Conversion, Sizes, convert
    from tests.engines.test_interrupted import SIZES
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


def until(process: subprocess.Popen, out: Path, kind: str, count: int) -> None:
    """Wait for so many scratch files of a kind: "shuffle" or "part"."""
    while len([path for path in out.glob(f".art-otel-scratch-*/{kind}-*") if path.suffix != ".tmp"]) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.001)


def worker_of(process: subprocess.Popen) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[-1])


def assert_converts(dump: Path, out: Path, undisturbed: dict[str, bytes]) -> None:
    """Nothing of an earlier conversion is in the way of the next, or left behind it."""
    convert_files(out, dump, sizes=SIZES, workers=2)
    assert contents(out) == undisturbed
    assert len(list(out.iterdir())) == 1 + len(undisturbed)


@pytest.mark.kill
@pytest.mark.parametrize("kind", ["shuffle", "part"])
@pytest.mark.parametrize("how", ["the parent is killed", "a worker is killed", "Ctrl-C"])
def test_whatever_ended_it_nothing_is_committed_and_the_next_converts(dump, tmp_path, undisturbed, kind, how):
    out = tmp_path / "out"
    process = begin(dump, out)
    until(process, out, kind, 2)
    if how == "a worker is killed":
        os.kill(worker_of(process), signal.SIGKILL)
    else:
        process.send_signal(signal.SIGKILL if how == "the parent is killed" else signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode != 0, errors
    assert not (out / "_report.json").exists()
    assert_converts(dump, out, undisturbed)


@pytest.mark.kill
def test_a_full_disk_is_an_error_and_leaves_nothing(dump, tmp_path, undisturbed):
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (300_000, 300_000))
    process = begin(dump, tmp_path / "out", preexec_fn=limit)
    _, errors = process.communicate()
    assert b"File too large" in errors
    assert process.returncode == 1
    assert not list((tmp_path / "out").glob(".art-otel-scratch-*"))
    assert_converts(dump, tmp_path / "out", undisturbed)


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
    assert_converts(dump, out, undisturbed)


@pytest.mark.long
def test_a_part_that_somebody_removed_is_there_again_after_the_same_conversion(dump, tmp_path, undisturbed):
    convert_files(tmp_path / "out", dump, sizes=SIZES, workers=2)
    next(tmp_path.glob("out/part-*")).unlink()
    assert_converts(dump, tmp_path / "out", undisturbed)


def test_sources_that_cannot_be_read_leave_nothing(tmp_path):
    (tmp_path / "in.jsonl").write_text("nothing that anybody knows")
    with pytest.raises(SourceError, match="no known format"):
        convert(Conversion(sources=[str(tmp_path / "in.jsonl")], out=tmp_path / "out", workers=2))
    assert list((tmp_path / "out").iterdir()) == []


def test_two_conversions_do_not_write_to_one_folder(tmp_path):
    refused: list[str] = []

    def convert_too() -> None:
        try:
            with scratch_folder(str(tmp_path)):
                pass
        except UsageError as error:
            refused.append(str(error))

    with scratch_folder(str(tmp_path)) as folder:
        thread = threading.Thread(target=convert_too)
        thread.start()
        thread.join()
        assert Path(folder).exists()
    assert len(refused) == 1
    assert "another process is writing there" in refused[0]
    convert_too()
    assert len(refused) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_locks_is_an_error(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(UsageError, match="does not support locks"), scratch_folder(str(tmp_path)):
        pass
