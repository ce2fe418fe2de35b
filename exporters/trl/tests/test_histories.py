"""GRPOTrainer on rollouts of several histories: how many tokens it trains of them, and the step by hand."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from art_otel_trl.rollouts import OTHER_HISTORY
from tests.exporting.samples import branching, group
from tests.exporting.tokenizer import saved_tokenizer
from tests.trainers.environment import trainer_python

from .test_train import RELEASES, REQUIREMENTS, ROOT

pytestmark = pytest.mark.trainer


@pytest.mark.parametrize("release", RELEASES)
def test_no_sampled_token_is_lost_and_the_step_is_the_one_by_hand(release, tmp_path):
    saved_tokenizer(tmp_path / "tokenizer")
    python = trainer_python("trl", release, *REQUIREMENTS)
    script = Path(__file__).with_name("step_with_histories.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parents[1])])}
    command = [python, script, tmp_path]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    turns = [turn for one in (branching(), *group(), branching()) for turn in one.turns]
    sampled = Counter(token for turn in turns if turn.token_ids for token in turn.token_ids.tolist())
    # TRL's own trainer takes a row a prompt: of six prompts, one rollout failed, and two have three histories.
    first, every = told["first"], told["every"]
    assert (first["rows"], every["rows"]) == (6, 10)
    assert Counter(every["trained"]) == sampled
    assert sum(Counter(first["trained"]).values()) < sum(sampled.values())
    assert first["skipped"] == {"trajectories: status": 1, f"histories: {OTHER_HISTORY}": 4}
    assert every["skipped"] == {"trajectories: status": 1}
    assert every["apart"] < 1e-6
    assert first["apart"] > 1e-2
    settings, other = told["refused"]
    assert settings.endswith("num_iterations=1, and no more steps_per_generation than gradient_accumulation_steps")
    assert other.endswith("give the rollout_func of a LiveRollouts itself")
