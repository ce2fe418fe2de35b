"""SkyRL's own trainer makes a batch of our rollouts, of the ids, masks, logprobs and rewards of the calls."""

import json
import os
import subprocess
from pathlib import Path
from statistics import mean, stdev

import pytest

from art_otel.exporting import export
from tests.exporting.samples import branching, conversation, group
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

SCRIPT = Path(__file__).with_name("train_with_skyrl.py")
PLACES = (SCRIPT.parents[3], SCRIPT.parents[1])
"""art-otel and this distribution."""
REQUIREMENTS = (
    "torch==2.13.0",
    "ray==2.57.0",
    "transformers==5.10.4",
    "tensordict==0.10.0",
    "accelerate==1.15.0",
    "datasets==4.8.5",
    "peft==0.18.1",
    *("loguru<1", "torchdata<1", "jaxtyping<1", "omegaconf<3", "hydra-core<2", "numpy<3", "cloudpathlib<1"),
    *("polars<2", "orjson<4", "fastapi<1", "uvicorn<1", "aiohttp<4", "pybase64<2", "httpx<1", "xxhash<4"),
    *("zstandard>=0.23", "msgspec>=0.22", "func_timeout<5", "wandb<1", "tensorboard<3"),
)
"""What SkyRL's trainer imports; all that it requires would be CUDA's libraries too."""
RELEASES = (("skyrl==0.4.0", "skyrl-gym==0.4.0"), ("skyrl==0.3.0", "skyrl-gym==0.3.0"))
"""The newest and the one before."""


@pytest.fixture(scope="module", params=RELEASES, ids=" ".join)
def python(request) -> Path:
    return trainer_python("skyrl", *REQUIREMENTS, alone=request.param, version="3.12")


def trained(python: Path, rollouts, folder: Path, mode: str, members: int) -> list[dict]:
    export(rollouts, "skyrl", folder / "rollouts.jsonl")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PLACES)), "HF_HUB_OFFLINE": "1"}
    command = [python, SCRIPT, folder / "rollouts.jsonl", str(members), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["rows"]


def computed(calls) -> dict:
    """The sequence of calls each of which continues the one before, from their ids and logprobs alone."""
    ids, mask, logprobs = [], [], []
    for call in calls:
        prompt, (choice,) = call.prompt_token_ids.tolist(), call.choices
        assert prompt[: len(ids)] == ids
        between = len(prompt) - len(ids)
        ids = prompt + choice.token_ids.tolist()
        mask += [0.0] * between + [1.0] * len(choice.token_ids)
        logprobs += [0.0] * between + choice.logprobs.tolist()
    start = mask.index(1.0)
    return {"ids": ids, "loss_mask": mask[start:], "rollout_logprobs": logprobs[start:]}


def test_several_turns_with_tools_and_interior_masks(python, tmp_path):
    others = [conversation(f"r-{number}", "Snow.", float(number), group_id="h") for number in range(3)]
    rollouts = [*group(), *others]
    rows = trained(python, rollouts, tmp_path, "plain", 3)
    assert [row["id"] for row in rows] == [f"{group} of step 3_{at}" for group in "gh" for at in range(3)]
    for row, member in zip(rows, rollouts, strict=True):
        expected = computed(member.calls)
        assert 0.0 in expected["loss_mask"]
        assert {name: row[name] for name in expected} == expected
        assert row["rewards"] == [0.0] * (len(expected["loss_mask"]) - 1) + [member.reward]
        rewards = [one.reward for one in rollouts if one.group_id == member.group_id]
        advantage = (member.reward - mean(rewards)) / (stdev(rewards) + 1e-6)
        assert row["advantages"] == pytest.approx([advantage] * len(expected["loss_mask"]))


def test_the_histories_of_a_rollout_count_once_in_its_group(python, tmp_path):
    rollouts = [*group(), branching()]
    rows = trained(python, rollouts, tmp_path, "step_wise", 4)
    assert [row["id"] for row in rows] == [f"g of step 3_{at}" for at in (0, 1, 2, 3, 3, 3)]
    rewards = [one.reward for one in rollouts]
    for row in rows:
        reward = rewards[int(row["id"][-1])]
        advantage = (reward - mean(rewards)) / (stdev(rewards) + 1e-6)
        assert row["advantages"] == pytest.approx([advantage] * len(row["loss_mask"]))
    untrained = [turn for turn in branching().turns if turn.tokens_untrained is not None]
    trained_tokens = sum(len(turn.token_ids) for turn in branching().turns if turn.tokens_untrained is None)
    assert sum(sum(row["loss_mask"]) for row in rows[3:]) == trained_tokens
    assert untrained == []
