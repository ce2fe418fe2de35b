"""In the loop: the recipes of docs/loop/ train what our rollouts recorded, and the next are of the new weights."""

import json
import os
import subprocess
import tomllib
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev

import pytest

from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

ROOT = Path(__file__).parents[2]
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
OURS = (*DEPENDENCIES, "openai>=3")
TORCH = ("torch==2.13.0", "transformers==5.23.0")

VERL = (
    *("torch==2.13.0", "ray==2.60.0", "tensordict==0.10.0", "transformers==5.10.4", "datasets==4.8.5", "pandas==2.3.3"),
    *("numpy<3", "omegaconf<3", "hydra-core<2", "codetiming<2", "pillow", "cachetools<8", "fastapi<1", "torchdata<1"),
)
"""What verl's agent loops import."""


def test_trl_trains_the_tokens_that_its_own_weights_sampled(tmp_path):
    """What the server said of each token is what TRL computes with the weights of that step."""
    python = trainer_python("trl-loop", *TORCH, "trl==1.16.0", "datasets==4.8.5", "accelerate==1.15.0", *OURS)
    lines = run(python, "watch_trl.py", tmp_path, "trl")
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert line["versions"] == [str(line["step"])]
        assert line["largest_difference"] < 1e-4
        assert line["interior"] > 0
        assert line["rewards_differ"]
    assert len({line["weights"] for line in lines}) == 3


@pytest.fixture(scope="module")
def verl(tmp_path_factory) -> tuple[dict, dict, dict]:
    """What watch_verl.py prints: two steps, a step with every history, a step in which all fails."""
    python = trainer_python("verl-loop", *VERL, *OURS, alone=("verl==0.9.1",))
    return tuple(run(python, "watch_verl.py", tmp_path_factory.mktemp("verl"), "verl"))


def test_verl_makes_a_batch_of_what_its_agent_loop_sampled(verl):
    """Masks are where the server sampled, logprobs those of the weights, rewards the app's, advantages GRPO's."""
    assert len(verl[0]["steps"]) == 2
    for step, rows in enumerate(verl[0]["steps"]):
        for row in rows:
            start, expected = row["prompt_tokens"], row["computed"]
            assert row["mask"] == expected["mask"][start:]
            assert not any(expected["mask"][:start])
            assert row["logprobs"] == pytest.approx(expected["logprobs"][start:], rel=1e-6)
            assert row["scores"] == pytest.approx([0.0] * (len(row["mask"]) - 1) + [row["reward"]])
            assert row["versions"] == [step, step]
            rewards = [other["reward"] for other in rows if other["uid"] == row["uid"]]
            assert row["advantage"] == pytest.approx(
                (row["reward"] - mean(rewards)) / (stdev(rewards) + 1e-6), abs=1e-5
            )
        assert len(rows) == 16
        assert any(0 in row["mask"] and row["turns"] == 4 for row in rows)
        assert len({row["reward"] for row in rows}) > 1


def test_verl_is_given_every_history_where_it_takes_them(verl):
    """The older worker takes one of each rollout, and what it is not given is counted; V1 takes all."""
    assert verl[0]["skipped"] == {"histories: not the history that trains the most tokens": 8}
    trained = []
    for history in verl[1]["histories"]:
        at = 0
        for masked, tokens in groupby(history["response_mask"]):
            size = len(list(tokens))
            trained += [history["responses"][at : at + size]] * masked
            at += size
    assert sorted(trained) == sorted(completion for _, completion in verl[1]["sampled"])
    assert verl[1]["skipped"] == {}
    assert len(verl[1]["histories"]) > 16


def test_a_failed_rollout_is_a_row_that_trains_nothing(verl):
    assert verl[2]["failed"] == {"attention_mask": 32, "response_mask": 0, "rm_scores": 0.0}
    assert verl[2]["skipped"] == {
        "trajectories: status": 16,
        "rollouts of which nothing is trained, passed on as one untrained token": 16,
    }


def test_arts_backend_trains_the_tokens_that_its_own_weights_sampled(tmp_path):
    """ART's LocalBackend packs what numpy makes of the same rollouts, and its loss is the same."""
    wanted = ("openpipe-art==0.5.23", *TORCH, "duckdb>=1.0,<2", "pyarrow>=18", *DEPENDENCIES)
    python = trainer_python("art-loop", *wanted, version="3.12")
    lines = run(python, "watch_art.py", tmp_path, "art")
    assert [(line["versions"], line["version"]) for line in lines] == [(["0"], "1"), (["1"], "2"), (["2"], "3")]
    for line in lines:
        assert line["same_tokens_and_masks"]
        assert line["packed_difference"] < 1e-5
        assert line["logprob_difference"] < 1e-4
        assert line["loss_difference"] < 1e-5
        assert line["interior"] > 0
    assert len({line["weights"] for line in lines}) == 3


def run(python: Path, script: str, folder: Path, exporter: str) -> list[dict]:
    places = (ROOT, ROOT / "docs" / "loop", ROOT / "exporters" / exporter)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    path = Path(__file__).with_name(script)
    done = subprocess.run([python, path], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
