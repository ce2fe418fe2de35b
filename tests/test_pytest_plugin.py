"""pytest's plugin: a test is a rollout, its outcome the reward, its parameters the group."""

import subprocess
import sys

import pytest

from tests.live.runs import collect, environment
from tests.tracing.server import ModelServer

TESTS = """
import pytest
from openai import OpenAI


def ask(question):
    OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": question}])


@pytest.fixture
def asked():
    ask("in a fixture")


@pytest.fixture
def broken():
    raise RuntimeError("no server")


@pytest.mark.parametrize("attempt", range(2))
@pytest.mark.parametrize("task", ["a", "b"])
def test_task(asked, task, attempt):
    ask(task)
    assert attempt


def test_breaks():
    raise RuntimeError("gone")


def test_skips():
    pytest.skip("no")


def test_set_up(broken):
    pass
"""


@pytest.mark.program
def test_a_test_is_a_rollout(tmp_path):
    (tmp_path / "test_agent.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:warnings"]
    with ModelServer(tmp_path) as server:
        settings = environment(server, tmp_path)
        del settings["ART_OTEL_ENABLED"]
        plain = subprocess.run([*command, "-q"], env=settings, cwd=tmp_path, capture_output=True, check=False)
        assert plain.returncode == 1
        assert not (tmp_path / "art").exists()
        traced = subprocess.run(
            [*command, "-q", "--rollouts"], env=settings, cwd=tmp_path, capture_output=True, check=False
        )
        assert traced.stdout.splitlines()[-1].split(b" in ")[0] == plain.stdout.splitlines()[-1].split(b" in ")[0]
    found = {one.name.partition("::")[2]: one for one in collect(tmp_path).trajectories}
    told = {name: (one.group_id, one.status, one.reward, len(one.calls)) for name, one in found.items()}
    group = "test_agent.py::test_task[task={}]".format
    assert told == {
        "test_task[a-0]": (group("a"), "ok", 0.0, 2),
        "test_task[a-1]": (group("a"), "ok", 1.0, 2),
        "test_task[b-0]": (group("b"), "ok", 0.0, 2),
        "test_task[b-1]": (group("b"), "ok", 1.0, 2),
        "test_breaks": ("test_agent.py::test_breaks", "error", 0.0, 0),
        "test_skips": ("test_agent.py::test_skips", "ok", None, 0),
        "test_set_up": ("test_agent.py::test_set_up", "error", None, 0),
    }
    assert found["test_task[a-1]"].metadata == {"task": "a", "attempt": 1}
