"""pytest's plugin: a test is a rollout, its outcome the reward, its parameters the group."""

import subprocess
import sys

import pytest

from tests.live.runs import collect, environment
from tests.tracing.server import ModelServer

TESTS = """
import unittest

import art_otel
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


runs = []


@pytest.mark.flaky(reruns=2)
def test_again():
    runs.append(ask(f"run {len(runs)}"))
    assert len(runs) > 1


@pytest.mark.parametrize("good", [2, 3])
def test_parts(subtests, good):
    for part in range(3):
        with subtests.test(part=part):
            assert part < good


class TestUnit(unittest.TestCase):
    def test_parts(self):
        for part in range(2):
            with self.subTest(part=part):
                self.assertEqual(part, 0)


def test_skips_late(subtests):
    with subtests.test():
        pass
    pytest.skip("no")


def test_graded():
    art_otel.reward(0.5)


@pytest.mark.xfail
def test_expected():
    raise RuntimeError("as it is")


@pytest.mark.xfail
def test_unexpected():
    pass


@pytest.mark.xfail(strict=True)
def test_strict():
    pass
"""

WITHOUT_GROUPS = {
    "test_parts[2]": ("ok", 0.0, 0),
    "test_parts[3]": ("ok", 1.0, 0),
    "TestUnit::test_parts": ("ok", 0.0, 0),
    "test_skips_late": ("ok", None, 0),
    "test_graded": ("ok", 0.5, 0),
    "test_expected": ("ok", None, 0),
    "test_unexpected": ("ok", 1.0, 0),
    "test_strict": ("ok", 0.0, 0),
}
"""Status, reward and calls."""


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
    rollouts = collect(tmp_path).trajectories
    found = {one.name.partition("::")[2]: one for one in rollouts}
    told = {name: (one.group_id, one.status, one.reward, len(one.calls)) for name, one in found.items()}
    assert {name: told.pop(name)[1:] for name in WITHOUT_GROUPS} == WITHOUT_GROUPS
    runs = sorted((one for one in rollouts if one.name.endswith("::test_again")), key=lambda one: one.started_at)
    assert [(one.group_id, one.reward, one.calls[0].input_messages[0].content) for one in runs] == [
        ("test_agent.py::test_again", 0.0, "run 0"),
        ("test_agent.py::test_again", 1.0, "run 1"),
    ]
    del told["test_again"]
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
