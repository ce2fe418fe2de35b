"""The tutorial shows the very programs beside it, and they learn."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from statistics import mean

import pytest

from tests.docs.pages import DOCS, ROOT, text_of
from tests.trainers.environment import trainer_python

TUTORIAL = DOCS / "tutorial"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = ("torch==2.13.0", *PROJECT["optional-dependencies"]["demo"], *PROJECT["dependencies"])


def test_the_page_shows_the_programs():
    shown = dict(re.findall(r'^```py title="docs/tutorial/(\w+\.py)"\n(.*?)^```$', page(), re.MULTILINE | re.DOTALL))
    assert shown == {path.name: path.read_text(encoding="utf-8") for path in TUTORIAL.glob("*.py")}


def page() -> str:
    return text_of("docs/tutorial/README.md")


@pytest.fixture(scope="module")
def python() -> Path:
    return trainer_python("tutorial", *REQUIREMENTS)


def rewards_of(python: Path, folder: Path, program: str, steps: int) -> list[float]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(python), str(TUTORIAL / program), str(steps)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rewards = [float(reward) for reward in re.findall(r"reward ([\d.]+)$", done.stdout, re.MULTILINE)]
    assert len(rewards) == steps
    return rewards


@pytest.mark.trainer
def test_the_reward_goes_up_as_the_page_says(python, tmp_path):
    rewards = rewards_of(python, tmp_path, "train.py", 80)
    assert mean(rewards[:3]) < 0.5
    assert mean(rewards[-5:]) > 0.9


@pytest.mark.trainer
def test_the_reward_of_an_agent_behind_the_gateway_goes_up(python, tmp_path):
    rewards = rewards_of(python, tmp_path, "train_agent.py", 30)
    assert mean(rewards[:3]) < 0.5
    assert mean(rewards[-5:]) > 0.55
