"""The public API as a type checker sees it: a decorated function keeps its signature."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

APP = """
from collections.abc import AsyncGenerator, Generator
from typing_extensions import assert_type
import art_otel
import art_otel.workflows
from art_otel.workflows import Experience
from art_otel.tracing.api.running import RunningTrajectory

@art_otel.rollout
def plain(question: str, *, loud: bool = False) -> int: return 1

@art_otel.rollout(name="x", group_id="g", metadata={"a": 1}, split="train", attempt=1, training_step=2)
async def later(question: str) -> int: return 1

@art_otel.rollout
def generator(count: int) -> Generator[int, str, bytes]:
    yield count
    return b""

@art_otel.rollout()
async def async_generator(count: int) -> AsyncGenerator[int, str]:
    yield count

class Agent:
    @art_otel.rollout
    def method(self, question: str) -> int: return 1
    @classmethod
    @art_otel.rollout
    def make(cls, question: str) -> "Agent": return cls()

class StepWise(art_otel.workflows.StepWiseRewardWorkflow):
    max_step_num = 3
    def step(self, step_num: int) -> bool: return step_num < 2
    def reward(self, exps: list[Experience], step_num: int) -> float: return len(exps) / (1 + step_num)

class Propagation(art_otel.workflows.AsyncRewardPropagationWorkflow):
    def __init__(self, most: int) -> None:
        self._most = most
    @property
    def max_step_num(self) -> int: return self._most
    async def step_async(self, step_num: int) -> bool: return True
    async def reward_async(self, exps: list[Experience]) -> float | None: return None

def judge(trajectories: list[art_otel.Trajectory]) -> list[float]: return [0.0 for _ in trajectories]
async def judge_later(trajectories: list[art_otel.Trajectory]) -> list[float | None]: return [None] * len(trajectories)
async def compare_later(one: art_otel.Trajectory, other: art_otel.Trajectory) -> float | None: return 1.0

async def judged(group: art_otel.TrajectoryGroup) -> None:
    assert_type(art_otel.score_group(group, judge), list[art_otel.Trajectory])
    assert_type(await art_otel.score_group(group.trajectories, judge_later), list[art_otel.Trajectory])
    assert_type(art_otel.rank_group(group, lambda one, other: 0.5, "style"), list[art_otel.Trajectory])
    assert_type(await art_otel.rank_group(group, compare_later, both_ways=False), list[art_otel.Trajectory])
    art_otel.reward(0.5, target="response-1", choice=1, tokens=(2, 5))
    (experience,) = StepWise(task=1, model=None).run()
    experience.reward = 0.5
    assert_type(await Propagation(2).run_async(), list[Experience])
    art_otel.score_group(group, compare_later)  # wrong
    art_otel.reward(0.5, target="response-1", tokens=3)  # wrong

async def use() -> None:
    assert_type(plain("a", loud=True), int)
    assert_type(await later("a"), int)
    assert_type(generator(1), Generator[int, str, bytes])
    assert_type(async_generator(1), AsyncGenerator[int, str])
    assert_type(Agent().method("a"), int)
    assert_type(Agent.make("a"), Agent)
    with art_otel.rollout(name="b") as trajectory, art_otel.step() as step:
        assert_type(trajectory, RunningTrajectory)
        assert_type(step.index, int | None)
    async with art_otel.rollout(name="b") as other, art_otel.step(3):
        other.metrics["a"] = 1
    found = await art_otel.gather_trajectory(later("a"))
    assert_type(found, art_otel.Trajectory[int])
    assert_type(await art_otel.gather_trajectories([later("a"), lambda: plain("b")]), list[art_otel.Trajectory])
    gathering = art_otel.gather_trajectories([later("a")])
    async for one in gathering:
        assert_type(one, art_otel.Trajectory[int])
    async with art_otel.connect("http://127.0.0.1:4318") as connected, art_otel.receive() as received:
        new = art_otel.NewTrajectories(".art/spool")
        for door in (new, connected, received):
            async for one in door:
                assert_type(one, art_otel.Trajectory)
        for door in (gathering, new, connected, received):
            async for group in door.groups(size=8, timeout=60):
                assert_type(group, art_otel.TrajectoryGroup)
    groups = await art_otel.gather_trajectory_groups({"g": [later("a")]})
    assert_type(groups, list[art_otel.TrajectoryGroup])
    await art_otel.gather_trajectory_groups((later("a") for _ in range(3)) for _ in range(2))
    art_otel.reward(0.5, target=found)
    art_otel.reward(None, label="good", target=found.calls[0])
    assert_type(art_otel.in_context(plain)("a"), int)
    plain(1)  # wrong
    plain("a", quiet=True)  # wrong
    await later()  # wrong
    Agent().method(2)  # wrong
    art_otel.reward("good", target=3)  # wrong
"""


def test_a_decorated_function_keeps_its_signature(tmp_path):
    pytest.importorskip("pyright")
    app = tmp_path / "app.py"
    app.write_text(APP, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportMissingModuleSource": false}')
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable, str(app)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = {number for number, line in enumerate(APP.splitlines(), 1) if line.endswith("# wrong")}
    told = [line for line in done.stdout.splitlines() if " error: " in line]
    assert {int(line.split(":")[1]) for line in told} == wrong, done.stdout
