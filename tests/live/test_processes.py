"""Processes: however a program makes its children and however it ends, every ended span is in the output once."""

import os
import signal
import subprocess

import pytest

from tests.live.comparison import check_calls
from tests.live.environments import live_python
from tests.live.runs import APPS, Way, answer_ids, by_instrument, by_run, collect, environment, response_ids, run_app
from tests.live.test_kills import ended_spans

CHILDREN = ["fork", "spawn", "forkserver", "pool", "executor", "os_fork"]
ENDINGS = {"return": 0, "exit": 3, "os_exit": 4, "raise": 1, "abort": -signal.SIGABRT}
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]


@pytest.fixture(scope="module")
def python():
    return live_python("openllmetry")


@pytest.mark.parametrize("how", CHILDREN)
def test_children(server, tmp_path, python, how):
    run = run_app(server, tmp_path, by_run(python, str(APPS / "processes.py"), how))
    assert run.code == 0, run.errors
    assert sorted(run.printed) == answer_ids(server.exchanges())
    check_calls(run.trajectories, server.exchanges())
    assert set(ended_spans(tmp_path / "art" / "spool").values()) == {1}


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children_under_opentelemetry_instrument(server, tmp_path, python, how):
    run = run_app(server, tmp_path, by_instrument(python, str(APPS / "processes.py"), how))
    assert run.code == 0, run.errors
    check_calls(run.trajectories, server.exchanges())
    assert set(ended_spans(tmp_path / "art" / "spool").values()) == {1}


@pytest.mark.parametrize("how", ENDINGS)
def test_endings(server, tmp_path, python, how):
    run = run_app(server, tmp_path, by_run(python, str(APPS / "endings.py"), how))
    assert run.code == ENDINGS[how]
    assert sorted(run.output.split()) == answer_ids(server.exchanges()) == response_ids(run.trajectories)
    assert run.only.status == ("unfinished" if how in {"os_exit", "abort"} else "ok"), run.errors
    assert ("RuntimeError: as it was asked to" in run.errors) == (how == "raise")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("way", [by_run, by_instrument])
def test_signals(server, tmp_path, python, number, way: Way):
    command = way(python, str(APPS / "endings.py"), "wait")
    process = subprocess.Popen(
        command,
        env=environment(server, tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None,  # noqa: PLW1509 # whoever runs the tests may ignore it
    )
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(4)]
    process.send_signal(number)
    output, errors = process.communicate(timeout=10)
    assert process.returncode == -number, errors
    assert not output
    run = collect(tmp_path)
    assert told == [*answer_ids(server.exchanges()), "waiting"]
    assert response_ids(run.trajectories) == told[:3]
    assert run.only.status in {"unfinished", "ok"}


def test_an_app_killed_in_a_call_leaves_its_rollout_unfinished(server, tmp_path, python):
    request = "model='m', messages=[{'role': 'user', 'content': '#delay=30'}]"
    code = f"import openai; openai.OpenAI().chat.completions.create({request})"
    process = subprocess.Popen(by_run(python, "-c", code), env=environment(server, tmp_path), cwd=tmp_path)
    spool = tmp_path / "art" / "spool"
    while not sum(len(path.read_bytes().splitlines()) for path in spool.rglob("*.jsonl")):
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run = collect(tmp_path)
    assert run.only.status == "unfinished"
    assert not run.only.complete
