"""NeMo Gym's own types take our rollouts, and what NeMo RL joins of them are the histories of the calls."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from art_otel.exporting import export
from tests.exporting.samples import branching, group
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

SCRIPT = Path(__file__).with_name("validate_with_nemo_gym.py")
REQUIREMENTS = (
    *("pydantic>=2.12", "fastapi<1", "omegaconf<3", "hydra-core<2", "ray==2.60.0", "wandb<1", "httptools", "jinja2"),
    *("itsdangerous<3", "rich", "orjson<4", "uvicorn<1", "aiohttp<4", "yappi<2", "gprof2dot", "pydot", "pandas==2.3.3"),
    *("scipy<2", "mcp<2", "packaging", "psutil", "python-multipart"),
)
"""What NeMo Gym's types import."""
RELEASES = {
    "nemo-gym==0.7.0": ("openai==2.44.0", "3.13"),
    "nemo-gym==0.6.0": ("openai==2.44.0", "3.13"),
    "nemo-gym==0.4.0": ("openai==2.7.2", "3.12"),
}
"""The newest release and the one before, and the newest for Python 3.12. The others ask for 3.13.14 or newer."""
CLAIMED = {"3.13": "3.13.14", "3.12": None}


@pytest.fixture(scope="module", params=RELEASES)
def validated(request, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("nemo-gym")
    export([*group(), branching()], "nemogym", folder / "rollouts.jsonl")
    client, version = RELEASES[request.param]
    python = trainer_python(
        "nemo-gym", client, *REQUIREMENTS, alone=(request.param,), version=version, claimed=CLAIMED[version]
    )
    command = [python, SCRIPT, folder / "rollouts.jsonl"]
    done = subprocess.run(command, env=os.environ, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def joined(rollout: dict) -> tuple[list[int], list[int], list[float]]:
    """As NeMo RL joins the items of a rollout: what is new in a prompt is context, what was generated is trained."""
    ids, mask, logprobs = [], [], []
    for item in rollout["trained"]:
        prompt, generated = item["prompt_token_ids"], item["generation_token_ids"]
        assert prompt[: len(ids)] == ids
        context = len(prompt) - len(ids)
        ids = prompt + generated
        mask += [0] * context + [1] * len(generated)
        logprobs += [0.0] * context + item["generation_log_probs"]
    return ids, mask, logprobs


def test_several_turns_with_tools_are_one_sequence(validated):
    for rollout, member in zip(validated["rollouts"], group(), strict=False):
        first, last = member.calls
        middle = len(last.prompt_token_ids) - len(first.prompt_token_ids) - len(first.choices[0].token_ids)
        answers = [call.choices[0] for call in member.calls]
        sizes = [len(answer.token_ids) for answer in answers]
        start = len(first.prompt_token_ids)
        ids, mask, logprobs = joined(rollout)
        assert ids == last.prompt_token_ids.tolist() + answers[1].token_ids.tolist()
        assert mask == [0] * start + [1] * sizes[0] + [0] * middle + [1] * sizes[1]
        told = [answer.logprobs.tolist() for answer in answers]
        assert logprobs == [0.0] * start + told[0] + [0.0] * middle + told[1]
        assert rollout["reward"] == member.reward
        assert rollout["types"] == [
            "NeMoGymResponseFunctionToolCallForTraining",
            "NeMoGymFunctionCallOutput",
            "NeMoGymResponseOutputMessageForTraining",
        ]
        assert [item["content"] for item in rollout["input"]] == [one.content for one in first.input_messages]
        assert rollout["tools"] == ["look_up"]
        assert rollout["items"] == 5


def test_each_completion_of_a_rollout_is_trained_once(validated):
    sampled = [turn.token_ids.tolist() for turn in branching().turns if turn.tokens_untrained is None]
    trained = [item["generation_token_ids"] for one in validated["rollouts"][3:] for item in one["trained"]]
    assert sorted(trained) == sorted(sampled)
    assert len(validated["rollouts"]) == 6


def test_its_report_groups_the_rollouts_of_a_task(validated):
    assert validated["groups"] == 1
    assert validated["agent"]["mean/reward"] == pytest.approx((1.0 + 0.5 + 0.0 + 3 * 0.75) / 6)
