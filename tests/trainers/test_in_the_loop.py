"""In the loop: the recipes of docs/loop/ train what our rollouts recorded, and the next are of the new weights."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

ROOT = Path(__file__).parents[2]
OURS = (*tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"], "openai>=3")
TORCH = ("torch==2.13.0", "transformers==5.23.0")


def test_trl_trains_the_tokens_that_its_own_weights_sampled(tmp_path):
    """What the server said of each token is what TRL computes with the weights of that step."""
    python = trainer_python("trl-loop", *TORCH, "trl==1.16.0", "datasets==4.8.5", "accelerate==1.15.0", *OURS)
    lines = run(python, "watch_trl.py", tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert line["versions"] == [str(line["step"])]
        assert line["largest_difference"] < 1e-4
        assert line["interior"] > 0
        assert line["rewards_differ"]
    assert len({line["weights"] for line in lines}) == 3


def run(python: Path, script: str, folder: Path) -> list[dict]:
    places = (ROOT, ROOT / "docs" / "loop", ROOT / "exporters" / "trl")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    path = Path(__file__).with_name(script)
    done = subprocess.run([python, path], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
