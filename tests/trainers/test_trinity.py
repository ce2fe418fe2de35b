"""Step-wise and propagated rewards equal those of Trinity-RFT's own workflow classes on the same calls.

Both agents ask one server, which answers the same request in the same way, so the calls are the same to the token.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from art_otel.data.credit import outcome_reward, step_reward
from tests.conversions import convert_files
from tests.tracing.server import ModelServer
from tests.trainers.environment import trainer_python
from tests.trainers.plan import PLANS

pytestmark = pytest.mark.trainer

ROOT = Path(__file__).parents[2]
REQUIREMENTS = (
    "torch==2.13.0",
    "ray==2.60.0",
    *("safetensors<1", "httpx<1", "openai<4", "omegaconf<3", "transformers<6", "numpy<3", "pybase64<2"),
)
"""What Trinity's workflows import, but for vLLM; all that it requires would be everything that trains."""

RELEASES = ("trinity-rft==0.6.0", "trinity-rft==0.5.2")
"""The newest and the one before."""


def run(*command: object, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ART_OTEL_"))}
    given = clean | {"PYTHONPATH": str(ROOT), **environment}
    told = [str(part) for part in command]
    done = subprocess.run(told, env=given, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trinity")


@pytest.fixture(scope="module")
def server(folder):
    with ModelServer(folder) as running:
        yield running


@pytest.fixture(scope="module", params=RELEASES)
def theirs(request, server):
    """By workflow class, the experiences of each plan."""
    python = trainer_python("trinity", *REQUIREMENTS, alone=(request.param,))
    printed = run(python, Path(__file__).with_name("run_with_trinity.py"), json.dumps(PLANS), server.url)
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def ours(server, folder):
    """By workflow class, the trajectory of each plan."""
    settings = {"ART_OTEL_ENABLED": "1", "ART_OTEL_DIR": str(folder), "ART_OTEL_REQUEST_TOKENS": "1"}
    run(sys.executable, "-m", "tests.trainers.run_workflows", json.dumps(PLANS), server.url, **settings)
    trajectories, _ = convert_files(folder / "out", folder / "spool")
    found = {name: [None] * len(PLANS) for name in {trajectory.name for trajectory in trajectories}}
    for trajectory in trajectories:
        found[trajectory.name][trajectory.attempt] = trajectory
    return found


@pytest.mark.parametrize("name", ["StepWise", "AsyncStepWise", "Propagation", "AsyncPropagation"])
@pytest.mark.parametrize("number", range(len(PLANS)))
def test_every_call_has_the_reward_that_trinity_gives_it(theirs, ours, name, number):
    experiences, trajectory = theirs[name][number], ours[name][number]
    assert trajectory.complete
    credit = step_reward() if "StepWise" in name else outcome_reward()
    given = credit.rewards(trajectory)
    found = [
        {
            "prompt": trajectory.calls[turn.call].prompt_token_ids.tolist(),
            "completion": turn.token_ids.tolist(),
            "reward": reward,
            "step": trajectory.calls[turn.call].step,
        }
        for turn, reward in zip(trajectory.turns, given, strict=True)
    ]
    assert found == [{key: value for key, value in one.items() if key != "metrics"} for one in experiences]
    for experience in experiences:
        if "Propagation" in name:
            assert experience["metrics"] == trajectory.metrics
