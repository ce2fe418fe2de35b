"""Calls of many requests or tasks in one rollout: the log says so, and doctor, and with a rollout each nothing does."""

import json
from textwrap import indent

import pytest

from art_otel.cli import main
from tests.conversions import convert_files
from tests.examples import daily
from tests.tracing.setup.programs import CALL, run_code

ON = {"ART_OTEL_ENABLED": "1"}
INDENTED = CALL.replace(chr(10), chr(10) + "    ")
STARLETTE = f"""
import art_otel
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

ROLLOUT
def agent():
{INDENTED}

async def ask(request):
    agent()
    return PlainTextResponse("ok")

with TestClient(Starlette(routes=[Route("/ask", ask)])) as client:
    for _ in range(3):
        client.get("/ask")
"""
CELERY = f"""
import art_otel
from celery import Celery
app = Celery("tasks", broker="memory://", backend="cache+memory://")
app.conf.task_always_eager = True

@app.task
def agent():
{INDENTED}

for _ in range(3):
    agent.delay().get()
"""
PLAIN = f"""
import art_otel
for _ in range(3):
{INDENTED}
"""


@pytest.mark.parametrize(
    ("code", "framework"), daily([(STARLETTE.replace("ROLLOUT", ""), "starlette"), (CELERY, "celery")], one_in=2)
)
def test_calls_of_requests_in_one_rollout_are_told(tmp_path, capsys, code, framework):
    pytest.importorskip(framework)
    program = run_code(tmp_path, code, **ON)
    assert program.code == 0, program.errors
    assert program.errors.count(f"calls in requests or tasks of {framework} are in one rollout") == 1
    assert f"pip install 'opentelemetry-instrumentation-{framework}'" in program.errors
    ((found,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert (len(found.calls), found.metadata) == (3, {"art.requests_of": framework})
    main(["doctor", "--json", str(tmp_path / ".art" / "spool")])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one for one in findings if f"many requests or tasks of {framework}: decorate" in one["text"]]


def test_they_are_told_of_a_server_that_was_stopped(tmp_path, capsys):
    run_code(tmp_path, f"{CELERY}\nimport os, signal\nos.kill(os.getpid(), signal.SIGTERM)", **ON)
    main(["doctor", str(tmp_path / ".art" / "spool")])
    found = capsys.readouterr().out
    assert "many requests or tasks of celery: decorate" in found
    assert "not ended (1)" in found


@pytest.mark.parametrize("calls", [CALL, "pass"], ids=["with a call", "without"])
def test_calls_behind_a_request_are_told_where_it_had_none(tmp_path, capsys, calls):
    request = f"with tracer.start_as_current_span('GET /stream'):\n{indent(calls, '    ')}"
    code = f"from opentelemetry import trace\nimport art_otel\ntracer = trace.get_tracer('web')\n{request}\n{CALL}"
    program = run_code(tmp_path, code, ART_OTEL_ROLLOUT_SPANS="GET *", **ON)
    told = "after 'GET /stream' ended without one. If they belong to it" in program.errors
    assert (program.code, told) == (0, calls != CALL)
    main(["doctor", str(tmp_path / ".art" / "spool")])
    found = capsys.readouterr().out
    assert ("after 'GET /stream' had ended without a call; if they are its own" in found) == told


@pytest.mark.parametrize(
    ("code", "rollouts"), [(STARLETTE.replace("ROLLOUT", '@art_otel.rollout(name="ask")'), 3), (PLAIN, 1)]
)
def test_a_rollout_a_request_and_a_program_without_requests_are_not(tmp_path, code, rollouts):
    program = run_code(tmp_path, code, **ON)
    assert (program.code, "requests" in program.errors) == (0, False)
    found, _ = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert len(found) == rollouts
