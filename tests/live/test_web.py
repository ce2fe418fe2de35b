"""Web servers that fork or reload: every request's call is in the output once."""

import http.client
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.comparison import check_calls
from tests.live.environments import live_python
from tests.live.rotel import free_port, wait_for_port
from tests.live.runs import APPS, Way, answer_ids, by_instrument, by_run, collect, environment, wait_until
from tests.live.test_kills import ended_spans

REQUESTS = 12


@contextmanager
def serving(server, folder: Path, command: list[str], port: int, app: Path = APPS):
    """A web server that is told to end politely afterwards."""
    settings = environment(server, folder)
    process = subprocess.Popen(
        command, env=settings, cwd=app, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for_port(port, process)
        yield process
    finally:
        errors = stop(process)
    assert "Traceback" not in errors, errors


def stop(process: subprocess.Popen) -> str:
    """End a program politely and return what it said."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it did not end: {process.communicate()[1]}") from None


def get(port: int, path: str) -> str:
    """The body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    assert answer.status == 200, body
    return body


def check(server, folder: Path, told: list[str]) -> None:
    """Each request's call is there once."""
    assert sorted(told) == answer_ids(server.exchanges())
    run = collect(folder)
    check_calls(run.trajectories, server.exchanges())
    assert set(ended_spans(folder / "art" / "spool").values()) == {1}


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["plain", "preload"])
@pytest.mark.parametrize("way", [by_run, by_instrument])
def test_gunicorn_pre_fork(server, tmp_path, way: Way, preload):
    python, port = live_python("openllmetry"), free_port()
    program = str(python.parent / "gunicorn")
    options = [
        "--workers",
        "2",
        "--bind",
        f"127.0.0.1:{port}",
        "--no-control-socket",
        "--graceful-timeout",
        "3",
        *preload,
        "web:application",
    ]
    command = way(python, program, *options)
    with serving(server, tmp_path, command, port):
        told = [get(port, f"/{number}") for number in range(REQUESTS)]
    check(server, tmp_path, told)


def test_uvicorn(server, tmp_path, instrumentor):
    python, port = live_python(instrumentor), free_port()
    command = by_run(python, "-m", "uvicorn", "--port", str(port), "--log-level", "warning", "web:asgi")
    with serving(server, tmp_path, command, port):
        told = [get(port, f"/{number}") for number in range(REQUESTS)]
    check(server, tmp_path, told)


def test_uvicorn_reload(server, tmp_path):
    python, port = live_python("openllmetry"), free_port()
    folder = tmp_path / "site"
    folder.mkdir()
    module = folder / "web.py"
    module.write_text((APPS / "web.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = by_run(python, "-m", "uvicorn", "--reload", "--port", str(port), "--log-level", "warning", "web:asgi")
    with serving(server, tmp_path, command, port, folder):
        told = [get(port, f"/{number}") for number in range(3)]
        spool = tmp_path / "art" / "spool"
        before = len(list(spool.rglob("*.jsonl")))
        module.write_text(
            module.read_text(encoding="utf-8").replace('f"path {path}"', 'f"new {path}"'), encoding="utf-8"
        )

        def reloaded() -> bool:
            told.append(get(port, f"/{len(told)}"))
            return len(list(spool.rglob("*.jsonl"))) > before

        wait_until(reloaded, "uvicorn reloads")
    assert any(one.body["messages"][0]["content"].startswith("new") for one in server.exchanges())
    check(server, tmp_path, told)
