"""The tutorial shows the very programs beside it, and a real language model learns by them.

A few steps are made every time; `ART_OTEL_TUTORIAL_STEPS=30` (`.ci/full tutorial`) makes as many as the page.
"""

import os
import re
import subprocess
from pathlib import Path
from statistics import mean

import pytest

from tests.conversions import convert_files
from tests.docs.pages import DOCS, ROOT, text_of
from tests.examples import how_many
from tests.trainers.environment import language_model_python

TUTORIAL = DOCS / "tutorial"
STEPS = how_many("ART_OTEL_TUTORIAL_STEPS", 2)
WHOLE = 30
"""Steps within which the model learns."""
GAMES = 40
"""In a step."""


def test_the_page_shows_the_programs():
    page = text_of("docs/tutorial/README.md")
    shown = dict(re.findall(r'^```py title="docs/tutorial/(\w+\.py)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL))
    assert shown == {path.name: path.read_text(encoding="utf-8") for path in TUTORIAL.glob("*.py")}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Run a program of the tutorial in a folder; what it prints."""
    python = language_model_python()
    model = tmp_path_factory.mktemp("tutorial") / "smollm2"

    def run(folder: Path, name: str, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        command = [str(python), str(TUTORIAL / name), str(model), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(model.parent, "model.py")
    return run


def rewards(printed: str, steps: int) -> list[float]:
    """The reward of each step; what the server sampled is what torch computes."""
    told = re.findall(r"reward ([\d.]+)  apart ([\d.e-]+)", printed)
    assert len(told) == steps
    assert max(float(apart) for _, apart in told) < 1e-4
    return [float(reward) for reward, _ in told]


@pytest.mark.trainer
def test_a_language_model_learns_from_its_games(program, tmp_path):
    seen = rewards(program(tmp_path, "train.py", "--steps", str(STEPS)), STEPS)
    assert seen[0] < 0.5
    if STEPS >= WHOLE:
        assert mean(seen[-3:]) > 0.9
    games, _ = convert_files(tmp_path / "games", tmp_path / ".art" / "spool")
    assert len(games) == STEPS * GAMES
    # A policy may say `****`, which is how a Collector masks: its ids are trained all the same.
    assert {reason for game in games for reason in game.incomplete_reasons} <= {"content masked"}
    assert all(turn.token_ids is not None for game in games for turn in game.turns)
    assert all(turn.tokens_untrained is None for game in games for turn in game.turns)


@pytest.mark.trainer
def test_it_learns_from_the_games_of_a_program_behind_the_gateway(program, tmp_path):
    steps = STEPS if STEPS >= WHOLE else 1
    seen = rewards(program(tmp_path, "train_agent.py", "--steps", str(steps)), steps)
    assert seen[0] < 0.5
    if steps >= WHOLE:
        assert mean(seen[-3:]) > 0.9
