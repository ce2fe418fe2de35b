"""ART's request for a run log: its calls as it wrote them, in ART's own environment, on rollouts of ours."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.requests.programs import ROOT
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

ART = ("openpipe-art==0.5.18", "duckdb>=1.0,<2", "polars>=1.26,<2")


def test_the_request_runs_as_written(server, tmp_path):
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    python = trainer_python("art-request", *ART, *ours)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ART_OTEL_", "OTEL_", "WANDB"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "exporters" / "art")])
    done = subprocess.run(
        [python, Path(__file__).with_name("train_with_art.py"), tmp_path],
        env=clean | {"PYTHONPATH": path, "MODEL_URL": server.url, "ART_OTEL_REQUEST_TOKENS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["step"] == 0
    assert told["rewards"] == [[0.0, 1.0], [0.0, 1.0]]
    assert told["unrewarded"] == ["ValueError: no reward for this one"]
    assert told["trained"] == told["results"]
    assert told["exceptions"] == told["unrewarded"]
    assert {"val/reward", "val/exception_rate"} <= set(told["row"])
