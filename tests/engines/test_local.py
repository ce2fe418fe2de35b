"""The local engine: results in the order of the tasks, and what happens when one fails or its process is gone."""

import gzip
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from art_otel.engines import Conversion, Sizes, convert
from art_otel.engines.run import choose_workers, local_engine
from art_otel.errors import UsageError, WorkerError
from art_otel.sources import InputFile, find_inputs
from tests.conversions import RECORDINGS

SPLIT = Sizes(least_split=10_000, most_split=10_000)


def after(task: tuple[int, float]) -> int:
    number, seconds = task
    time.sleep(seconds)
    return number


def fail(what: str) -> None:
    raise UsageError(what)


def end(how: int) -> None:
    os.kill(os.getpid(), how)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_summaries_come_in_the_order_of_the_tasks(workers):
    with local_engine(workers) as engine:
        assert list(engine.run(after, [(number, 0.2 if number == 3 else 0.0) for number in range(9)])) == [*range(9)]
        assert list(engine.run(after, [])) == []


@pytest.mark.parametrize(
    ("files", "workers"),
    [
        ({"a.jsonl": 200 << 20}, 1),  # two would take longer, and twice the memory
        ({"a.jsonl": 300 << 20, "b.jsonl": 300 << 20}, 2),
        ({"a.jsonl": 5 << 30}, 8),
        ({"a.jsonl.gz": 100 << 20}, 3),
        ({"pipe": None}, 8),
    ],
)
def test_there_are_several_workers_only_where_they_are_faster(monkeypatch, files, workers):
    monkeypatch.setattr("art_otel.engines.run.available_processors", lambda: 8)
    inputs = [InputFile(name=name, path=Path(name), size=size, explicit=True) for name, size in files.items()]
    assert choose_workers(inputs, Sizes().worker_bytes) == workers


@pytest.mark.parametrize("partition_bytes", [Sizes().partition_bytes, 20_000])
def test_a_small_input_has_few_blocks_and_the_same_bytes(tmp_path, partition_bytes):
    """One that is compressed has a block for each slot, and the same records in the same parts."""
    sizes = Sizes(partition_bytes=partition_bytes, part_bytes=partition_bytes)
    recordings = sorted((RECORDINGS / "traceloop").glob("*.jsonl"))
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(b"\n".join(one.read_bytes() for one in recordings))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    few, many = (sizes.fitted(find_inputs([str(one)])) for one in (plain, packed))
    assert few.bundle > many.bundle == 1
    bytes_of = list[list[bytes]]()
    for one in (plain, packed):
        convert(Conversion(sources=[str(one)], out=tmp_path / one.suffix, sizes=sizes))
        bytes_of.append([part.read_bytes() for part in sorted((tmp_path / one.suffix).glob("part-*.parquet"))])
    assert bytes_of[0] == bytes_of[1]
    assert (len(bytes_of[0]) > 1) == (partition_bytes < Sizes().partition_bytes)


def test_a_failure_is_raised_here():
    with pytest.raises(UsageError, match="no"), local_engine(2) as engine:
        list(engine.run(fail, ["no", "no"]))


@pytest.mark.long
def test_a_worker_that_is_killed_is_an_error_that_says_what_to_do():
    with pytest.raises(WorkerError, match="fewer --workers"), local_engine(2) as engine:
        list(engine.run(end, [signal.SIGKILL, 0]))


def _convert(out: Path) -> None:
    convert(Conversion(sources=[str(RECORDINGS / "traceloop")], out=out, workers=2, sizes=SPLIT))


@pytest.mark.long
def test_a_daemonic_process_converts_alone(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_convert, args=(tmp_path,), daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "_report.json").exists()


@pytest.mark.long
def test_a_script_without_a_main_guard_converts_with_several_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            from art_otel.engines import Conversion, Sizes, convert
            sizes = Sizes(least_split=10_000, most_split=10_000)
            source, out = {str(RECORDINGS / "traceloop")!r}, {str(tmp_path / "out")!r}
            print(convert(Conversion(sources=[source], out=out, workers=2, sizes=sizes)).trajectories.total)
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
