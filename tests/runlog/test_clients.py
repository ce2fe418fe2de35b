"""The real clients of W&B, MLflow and TensorBoard have each row at its step, read back from their files."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.install

CLIENTS = ("wandb", "mlflow", "tensorboard")


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for name in CLIENTS for one in project["optional-dependencies"][name]]
    # mlflow has the store in SQLite, and tensorboard the reader; the extras bring the clients alone.
    python = trainer_python("runlog-clients", *project["dependencies"], *extras, "mlflow>=3", "tensorboard>=2.19")
    folder = tmp_path_factory.mktemp("clients")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ART_OTEL_", "OTEL_", "WANDB"))}
    env = clean | {
        "PYTHONPATH": str(ROOT),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
    }

    def run(*arguments: object) -> str:
        command = [python, Path(__file__).with_name("report_to_clients.py"), *map(str, arguments)]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "did not reach" not in done.stderr
        return done.stdout

    run("log", folder, 3, 2)
    run("log", folder, 4)  # another process goes on
    return json.loads(run("read", folder).splitlines()[-1])


def test_wandb_has_a_run_of_the_model_with_rows_at_their_steps(found):
    first, second = found["wandb"]
    assert first["run"] == second["run"] == ["p_1", "m's", "m_s"]
    assert first["axes"]["train/*"] == first["axes"]["val/*"] == "training_step"
    assert first["rows"] == [
        {"train/loss": 0.75, "train/é 1": 2.0, "training_step": 3},
        {"train/loss": 0.5, "train/é 1": 2.0, "training_step": 2},
        {"val/reward": 0.5, "training_step": 3},
    ]
    assert [row["training_step"] for row in second["rows"]] == [4, 4]


def test_mlflow_has_one_finished_run_of_both_processes_beside_the_apps_own(found):
    (run,) = found["mlflow"]["p:1"]
    loss, odd = [[3, 0.75], [2, 0.5], [4, 1.0]], [[3, 2.0], [2, 2.0], [4, 2.0]]
    metrics = {"train/loss": loss, "train/__1": odd, "val/reward": [[3, 0.5], [4, 0.5]]}
    assert run == ["m's", "FINISHED", metrics]
    assert found["mlflow"]["of the app"] == [["its own", "FINISHED", {"app": [[0, 1.0]]}]] * 2


def test_mlflow_has_more_metrics_of_a_step_than_it_takes_in_one_call(found):
    assert found["mlflow of many"] == {f"rubric/{number}": number / 2 for number in range(2500)}


def test_tensorboard_has_the_event_files_in_the_folder_of_the_run(found):
    assert sorted(found["tensorboard"]["train/loss"]) == [[2, 0.5], [3, 0.75], [4, 1.0]]
    assert sorted(found["tensorboard"]["val/reward"]) == [[3, 0.5], [4, 0.5]]
    assert len(found["tensorboard"]) == 3
