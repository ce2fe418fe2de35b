"""Web frameworks and Celery: a request or a task is one complete rollout, by its instrumentor and one setting."""

import http.client
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.environments import services_python
from tests.live.rotel import free_port, wait_for_port
from tests.live.runs import answer_ids, by_instrument, collect, environment, response_ids, wait_until
from tests.live.test_web import stop

SERVICES = Path(__file__).parent / "services"
QUESTIONS = ["a", "b", "c"]
UVICORN = ("-m", "uvicorn", "--log-level", "warning", "--port", "{port}")

SERVERS = {
    "fastapi": (*UVICORN, "fastapi_app:app"),
    "flask": ("-m", "flask", "--app", "flask_app", "run", "--port", "{port}"),
    "django": (*UVICORN, "--interface", "wsgi", "django_app:application"),
}


def start(server, folder: Path, *command: str, **settings: str) -> subprocess.Popen:
    return subprocess.Popen(
        by_instrument(services_python(), *command),
        env=environment(server, folder, PYTHONPATH=str(SERVICES), **settings),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def post(port: int, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def check(server, folder: Path, name: str) -> None:
    """Each question is one complete rollout of two turns."""
    found = collect(folder).trajectories
    told = [(one.name, one.status, one.complete, len(one.calls)) for one in found]
    assert told == [(name, "ok", True, 2)] * len(QUESTIONS)
    assert response_ids(found) == answer_ids(server.exchanges())
    asked = sorted(one.calls[0].input_messages[0].content for one in found)
    assert asked == QUESTIONS


@pytest.mark.parametrize("name", SERVERS)
def test_a_request_is_a_rollout(server, tmp_path, name):
    port = free_port()
    command = [part.format(port=port) for part in SERVERS[name]]
    settings = {"ART_OTEL_ROLLOUT_SPANS": "GET *,POST *", "DJANGO_SETTINGS_MODULE": "django_settings"}
    process = start(server, tmp_path, *command, **settings)
    try:
        wait_for_port(port, process)
        for question in QUESTIONS:
            post(port, f"/answer/{question}")
    finally:
        stop(process)
    route = {"fastapi": "/answer/{question}", "flask": "/answer/<question>", "django": "answer/<question>"}[name]
    check(server, tmp_path, f"POST {route}")


@pytest.mark.skipif(sys.platform == "win32", reason="Celery forks its workers")
def test_a_task_is_a_rollout(server, tmp_path):
    broker = tmp_path / "broker"
    broker.mkdir()
    settings = {"ART_OTEL_ROLLOUT_SPANS": "run/*", "BROKER_FOLDER": str(broker)}
    process = start(server, tmp_path, "-m", "celery", "-A", "celery_tasks", "worker", "--concurrency", "2", **settings)
    try:
        for question in QUESTIONS:
            send = ["-m", "celery", "-A", "celery_tasks", "call", "celery_tasks.answer", "--args"]
            told = environment(server, tmp_path, PYTHONPATH=str(SERVICES), ART_OTEL_ENABLED="0", **settings)
            subprocess.run([services_python(), *send, json.dumps([question])], env=told, cwd=tmp_path, check=True)
        wait_until(lambda: len(answer_ids(server.exchanges())) == 2 * len(QUESTIONS), "the tasks are done", 60)
    finally:
        stop(process)
    check(server, tmp_path, "run/celery_tasks.answer")
