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


@pytest.mark.trainer
def test_the_reward_goes_up(python, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(python), str(TUTORIAL / "train.py"), "60"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rewards = [float(reward) for reward in re.findall(r"reward ([\d.]+)$", done.stdout, re.MULTILINE)]
    assert len(rewards) == 60
    assert mean(rewards[:5]) < 0.45
    assert mean(rewards[-5:]) > 0.6
