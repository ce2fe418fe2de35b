"""OpenEnv takes every trace, and TRL makes of it the rows that the histories are."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import art_otel
from art_otel.exporting import export
from tests.exporting.samples import branching, group, samples
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

REQUIREMENTS = (
    *("openenv==0.10.0", "trl==1.16.0", "torch==2.13.0", "transformers==5.23.0", "datasets==4.8.5"),
    "accelerate==1.15.0",
)


def test_trl_makes_the_histories_of_the_traces(tmp_path):
    rollouts = samples()
    export(rollouts, "openenv", tmp_path / "traces.jsonl")
    script = Path(__file__).with_name("read_with_openenv.py")
    python = trainer_python("openenv", *REQUIREMENTS)
    command = [python, script, tmp_path / "traces.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    traces = json.loads(done.stdout.splitlines()[-1])
    assert [trace["rollout_id"] for trace in traces] == [one.rollout_id for one in [*group(), branching()]]
    assert traces[0]["last"] == "Rain."
    for trace in traces:
        (trajectory,) = [one for one in rollouts if one.rollout_id == trace["rollout_id"]]
        expected = [
            (one.input_ids.tolist(), one.loss_mask.astype(int).tolist(), one.logprobs.tolist())
            for one in art_otel.batches([trajectory], advantage=None).sequences()
        ]
        assert sorted((row["ids"], row["mask"], row["logprobs"]) for row in trace["rows"]) == sorted(expected)
