"""tinker-cookbook's request for rollout traces: its built-in environments, by its own training config."""

import os
import subprocess
from pathlib import Path

import pytest

import art_otel
from exporters.tinker.tests.cookbook import RELEASES, WANTED
from tests.requests.programs import ROOT
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer


@pytest.mark.parametrize("release", RELEASES, ids=" ".join)
def test_every_built_in_environment_has_traces_with_raw_rewards(release, tmp_path):
    python = trainer_python("tinker", *WANTED, alone=release)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ART_OTEL_"))}
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "exporters" / "tinker")))
    done = subprocess.run(
        [python, Path(__file__).with_name("roll_out_with_tinker.py"), tmp_path],
        env=clean | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    art_otel.convert(tmp_path / "spool", tmp_path / "out")
    found = sorted(art_otel.read_trajectories(tmp_path / "out"), key=lambda one: one.started_at)
    traces = [trace for one in found for trace in art_otel.rollout_traces(one)]
    answers = {trace.policy_response["choices"][0]["message"]["content"]: trace for trace in traces}
    assert {answer: trace.reward_data for answer, trace in answers.items()} == {
        "4": problem(correct=1.0),
        "5": problem(correct=0.0),
        "abc": preference(1.0),
        "a": preference(-1.0),
    }
    assert {trace.prompt["messages"][-1]["content"] for trace in traces} == {"2 + 2 = ?", "Tell."}
    assert answers["4"].env_state["reference_answer"] == "4"
    assert {one.training_step for one in found} == {0}


def problem(*, correct: float) -> dict[str, float]:
    step = {"step/correct": correct, "step/format": 1.0, "step/reward": correct}
    return {**step, "rollout/final_reward": 0.0, "rollout/reward": correct}


def preference(value: float) -> dict[str, float]:
    group = {"rollout/win_minus_loss": value, "rollout/format": 1.0, "rollout/final_reward": value}
    return {"step/reward": 0.0, **group, "rollout/reward": value}
