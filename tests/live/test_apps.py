"""Apps that nobody wrote for us, under nothing but the environment variable, with each instrumentor."""

import subprocess

import pytest

from tests.live.comparison import check_calls, check_trained_once
from tests.live.environments import NAMES, live_python
from tests.live.runs import APPS, Way, alone, answer_ids, by_instrument, by_run, response_ids, run_app

WAYS = [by_run, by_instrument]


@pytest.mark.parametrize("way", WAYS)
def test_an_agent_with_tools_tasks_and_threads(server, tmp_path, instrumentor, way: Way):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, way(python, str(APPS / "weather_agent.py")))
    assert run.code == 0, run.errors
    assert run.only.complete, run.only.incomplete_reasons
    assert run.only.status == "ok"
    assert run.only.name == "weather_agent.py"
    check_calls(run.trajectories, server.exchanges())
    said = {message.content for message in (turn.message for turn in run.only.turns) if message}
    printed = run.printed
    assert {*printed.pop("tasks"), *printed.values()} <= said


def test_the_tokens_that_were_sampled(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    settings = {"ART_OTEL_REQUEST_TOKENS": "1", "ART_OTEL_POLICY_VERSION_HEADER": "x-policy-version"}
    run = run_app(server, tmp_path, by_run(python, str(APPS / "weather_agent.py")), **settings)
    assert run.code == 0, run.errors
    check_calls(run.trajectories, server.exchanges(), tokens=True)
    check_trained_once(run.only)
    assert not any(call.drifted_at is not None for call in run.only.calls)


def test_streams(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, by_run(python, str(APPS / "streams.py")), ART_OTEL_REQUEST_TOKENS="1")
    assert run.code == 0, run.errors
    assert response_ids(run.trajectories) == answer_ids(server.exchanges())
    contents = {choice.message.content for call in run.only.calls for choice in call.choices or ()}
    said = run.printed
    whole = {*said["whole"], said["helped"], *said["interleaved"]}
    assert whole <= contents
    assert run.only.complete
    unfinished = [
        call for call in run.only.calls if call.failed or any(c.finish_reason is None for c in call.choices or ())
    ]
    assert len(unfinished) == 3  # left early, broken, cancelled


def test_every_call(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, by_run(python, str(APPS / "every_call.py")))
    assert run.code == 0, run.errors
    assert response_ids(run.trajectories) == answer_ids(server.answered())
    assert sum(call.failed for call in run.only.calls) == 1
    said = run.printed
    contents = {choice.message.content for call in run.only.calls for choice in call.choices or ()}
    assert {*said["n"], said["raw"], said["streaming_raw"], said["retried"], said["responses"]} <= contents


def test_a_pool_of_threads(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, by_run(python, str(APPS / "pool.py")))
    assert run.code == 0, run.errors
    assert run.only.complete
    check_calls(run.trajectories, server.exchanges())


def test_all_instrumentors_at_once_record_each_call_once(server, tmp_path):
    python = live_python(*NAMES)
    run = run_app(server, tmp_path, by_instrument(python, str(APPS / "weather_agent.py")))
    assert run.code == 0, run.errors
    check_calls(run.trajectories, server.exchanges())


def test_nothing_but_the_variable(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    program = str(python.parent / "art-otel")
    subprocess.run([program, "autoload", "install"], check=True, capture_output=True)
    try:
        run = run_app(server, tmp_path, alone(python, str(APPS / "weather_agent.py")))
    finally:
        subprocess.run([program, "autoload", "remove"], check=True, capture_output=True)
    assert run.code == 0, run.errors
    assert run.only.complete
    check_calls(run.trajectories, server.exchanges())
