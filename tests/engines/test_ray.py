"""On Ray a conversion gives what it gives locally, byte for byte, whatever dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from art_otel import storage
from art_otel.cli.convert import exit_code
from art_otel.engines import Sizes, Times, convert
from art_otel.errors import UsageError, WorkerError
from art_otel.store import read_trajectories
from art_otel.store.superseded import compact
from tests.conversions import RECORDINGS, SMALL, check_sums
from tests.dumps import write_lines
from tests.engines.ray_cluster import (
    PHASES,
    SPLIT,
    Deadly,
    RayCluster,
    connected,
    contents,
    conversion,
    running_cluster,
    write_linked,
)
from tests.s3_server import CREDENTIALS, running

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("default::ResourceWarning", "default::DeprecationWarning", "default::FutureWarning"),
]

PROGRAM = textwrap.dedent("""
    import sys
    from pathlib import Path
    from art_otel.engines import convert
    from art_otel.engines.ray_engine import ray_engine
    from tests.engines.ray_cluster import conversion
    with ray_engine(None, sys.argv[1]) as engine:
        convert(conversion([Path(sys.argv[2])], Path(sys.argv[3])), engine)
""")


@pytest.fixture(scope="module")
def cluster():
    with running_cluster(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def engine(cluster):  # noqa: ARG001 # that this process is connected to
    with connected() as engine:
        yield engine


@pytest.fixture(scope="module")
def linked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("linked")
    write_linked(folder, 60, 4)
    return folder


@pytest.fixture(scope="module")
def undisturbed(linked, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed")
    report = convert(conversion([linked], out))
    check_sums(report)
    assert report.rewards.delivered == report.rewards.given == 3 * 60
    assert report.trajectories.total == 60
    parts = contents(out)
    assert len(parts) > 2
    return parts


@pytest.mark.parametrize("sizes", [SMALL, SPLIT, Sizes()], ids=["small", "split", "default"])
@pytest.mark.parametrize("files", [1, 4, 7])
def test_linked_traces_and_late_rewards_are_equal_to_the_local_engines(engine, tmp_path, files, sizes):
    sources = write_linked(tmp_path / "in", 20, files)
    report = convert(conversion(sources, tmp_path / "ray", sizes), engine)
    assert report == convert(conversion(sources, tmp_path / "local", sizes))
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_recordings_are_equal_to_the_local_engines(engine, tmp_path):
    report = convert(conversion([RECORDINGS], tmp_path / "ray", SMALL), engine)
    assert report == convert(conversion([RECORDINGS], tmp_path / "local", SMALL))
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


@pytest.mark.parametrize("seconds", [0.0, 0.01, None], ids=["at once", "in the middle", "when it was done"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_that_is_killed_changes_nothing(engine, linked, undisturbed, tmp_path, phase, seconds):
    deadly = Deadly(engine, tmp_path, phase, seconds)
    report = convert(conversion([linked], tmp_path / "out"), deadly)
    assert deadly.has_killed
    check_sums(report)
    assert contents(tmp_path / "out") == undisturbed


def refuse(folder: Path) -> None:
    with (folder / "tries").open("a") as file:
        file.write("once\n")
    raise UsageError("nobody can do that")


def test_an_error_of_a_task_is_raised_here_and_not_tried_again(engine, tmp_path):
    with pytest.raises(UsageError, match="nobody can do that"):
        list(engine.run(refuse, [tmp_path]))
    assert (tmp_path / "tries").read_text() == "once\n"


class Poisoned:
    """The Ray engine, where one task of a phase ends each worker that takes it."""

    def __init__(self, engine, phase: str, poisons) -> None:
        self._engine = engine
        self._phase = phase
        self._poisons = poisons

    def run(self, function, tasks):
        chosen = Poisoning(function, self._poisons) if function.__name__ == self._phase else function
        return self._engine.run(chosen, tasks)


class Poisoning:
    def __init__(self, function, poisons) -> None:
        self.__name__ = function.__name__
        self._function = function
        self._poisons = poisons

    def __call__(self, task):
        if self._poisons(task):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._function(task)


def reads_second_file(task) -> bool:
    return any(source.name.endswith("/1.jsonl") for source in task.inputs)


def makes_second_part(task) -> bool:
    return task.number == 1


def test_a_file_that_kills_every_worker_is_named_and_the_rest_is_converted(engine, linked, tmp_path):
    poisoned = Poisoned(engine, "read_split", reads_second_file)
    report = convert(conversion([linked], tmp_path / "out"), poisoned)
    (unread,) = report.unread
    assert unread.path.endswith("/1.jsonl")
    assert "3 workers died while running it" in (unread.error or "")
    assert report.trajectories.total == 60
    assert 0 < report.trajectories.complete < 60 or report.calls.total < 300
    assert exit_code(report, strict=False) == 1


def test_rows_that_kill_every_worker_are_an_error_and_nothing_is_replaced(engine, linked, undisturbed, tmp_path):
    convert(conversion([RECORDINGS / "traceloop"], tmp_path / "out"))
    before = contents(tmp_path / "out")
    with pytest.raises(WorkerError, match=r"out.*assemble: 3 workers died while running it"):
        convert(conversion([linked], tmp_path / "out"), Poisoned(engine, "assemble", makes_second_part))
    assert contents(tmp_path / "out") == before
    convert(conversion([linked], tmp_path / "out"), engine)
    assert contents(tmp_path / "out") == undisturbed


@pytest.mark.parametrize("kind", ["shuffle", "part"])
def test_a_driver_that_is_killed_changes_nothing(cluster: RayCluster, engine, linked, undisturbed, tmp_path, kind):
    out = tmp_path / "out"
    convert(conversion([RECORDINGS / "traceloop"], out))
    before = list(read_trajectories(out))
    command = [sys.executable, "-c", PROGRAM, cluster.address, str(linked), str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not list(out.glob(f".art-otel-scratch-*/{kind}-*")):
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.001)
        process.kill()
    assert list(read_trajectories(out)) == before
    time.sleep(2)  # until Ray has ended its workers
    convert(conversion([linked], out), engine)
    assert contents(out) == undisturbed
    assert not list(out.glob(".art-otel-scratch-*"))


def test_a_ray_of_its_own_through_the_command(tmp_path, linked):
    command = [sys.executable, "-m", "art_otel", "convert", str(linked), "--out", str(tmp_path), "--engine", "ray"]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run([*command, "--workers", "2"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "60 trajectories" in done.stdout
    assert len(list(read_trajectories(tmp_path))) == 60


@pytest.mark.store
def test_through_a_store_at_both_ends_the_parts_are_those_of_the_local_engine(linked, tmp_path, monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    convert(conversion([linked], tmp_path / "local", Sizes()))
    expected = json.loads((tmp_path / "local" / "_report.json").read_text())["parts"]
    with running(tmp_path / "log") as server:
        server.put("bucket")
        for path in linked.iterdir():
            server.put(f"bucket/in/{path.name}", path.read_bytes())
        sources, out = server.url("bucket/in/"), server.url("bucket/out")
        program = "import sys, art_otel; art_otel.convert(sys.argv[1], sys.argv[2], engine='ray', ray_address='local')"
        command = [sys.executable, "-c", program, sources, out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Token authentication" not in done.stdout + done.stderr
        report = json.loads(storage.read(storage.join(out, "_report.json")))
    assert report["parts"] == expected


def test_incremental_rounds_are_one_conversion_of_the_local_engine(engine, tmp_path):
    # Ray's workers import this module, and have none of hypothesis's profiles.
    from tests.engines.test_incremental_law import at_once, rows, shuffled  # noqa: PLC0415

    whole = conversion([tmp_path / "in"], tmp_path / "out", SMALL)
    rounds = replace(whole, incremental=True, times=Times(grace=0.0))
    for number, requests in enumerate(shuffled(4)):
        write_lines(tmp_path / "in" / f"{number}.jsonl", requests)
        check_sums(convert(rounds, engine))
        if number == 1:
            compact(tmp_path / "out")
    assert rows(read_trajectories(tmp_path / "out")) == at_once()
