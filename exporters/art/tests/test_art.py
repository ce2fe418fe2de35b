"""ART reads what we write for it, and trains on exactly the sampled tokens."""

import json
import math
import subprocess
from pathlib import Path

import pytest

from art_otel.exporting import export
from art_otel.trajectories import Trajectory, token_histories
from tests.exporting import samples
from tests.exporting.tokenizer import saved_tokenizer
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

WANTED = (
    "openpipe-art==0.5.18",
    "torch==2.13.0",
    "transformers>=4.51,<6",
    "jinja2>=3.1",
    "pillow>=10",
    "duckdb>=1.0,<2",
)
EVERYTHING = {"status": ("ok", "error")}


@pytest.fixture(scope="module")
def rollouts() -> list[Trajectory]:
    return samples.samples()


@pytest.fixture(scope="module")
def read(rollouts, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("art")
    python = trainer_python("art-tokenize", *WANTED)
    export(rollouts, "art", folder / "keep.jsonl", **EVERYTHING)
    export(rollouts, "art", folder / "exact.jsonl", **EVERYTHING, options={"tool_calls": "drop"})
    export(rollouts, "art", folder / "log", format="log")
    tokenizer = saved_tokenizer(folder / "tokenizer")
    script = Path(__file__).with_name("tokenize_with_art.py")
    done = subprocess.run([python, script, folder, tokenizer], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def tokens_of(trajectory: Trajectory) -> list[tuple]:
    """Ids, mask and logprobs of each history that trains something with logprobs."""
    return [
        (history.token_ids.tolist(), list(history.loss_mask), history.logprobs.tolist())
        for history in token_histories(trajectory)
        if history.logprobs is not None and any(history.loss_mask)
    ]


def trained(ids: list[int], mask: list[int], logprobs: list[float]) -> list[tuple]:
    return [(token, logprob) for token, sampled, logprob in zip(ids, mask, logprobs, strict=True) if sampled]


def test_the_tokenizer_gives_the_servers_prompts(tmp_path):
    from transformers import AutoTokenizer  # noqa: PLC0415 # it imports torch

    tokenizer = AutoTokenizer.from_pretrained(saved_tokenizer(tmp_path))
    messages = [{"role": "system", "content": "You look."}, {"role": "user", "content": "Zürich? 🌦"}]
    found = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert found == samples.prompt_ids([samples.Message(**message) for message in messages])


@pytest.mark.parametrize("file", ["keep", "exact"])
def test_art_trains_on_exactly_the_sampled_tokens(read, rollouts, file):
    for trajectory in rollouts:
        found = read[file]["tokenized"].get(trajectory.rollout_id, [])
        expected = tokens_of(trajectory) if trajectory.reward is not None and trajectory.status == "ok" else []
        assert sorted(trained(*history) for history in expected) == sorted(trained(*history) for history in found)


def test_without_tool_calls_beside_their_tokens_the_context_is_the_servers_too(read, rollouts):
    for trajectory in rollouts:
        for ids, mask, logprobs in read["exact"]["tokenized"].get(trajectory.rollout_id, []):
            assert all(math.isnan(logprob) for sampled, logprob in zip(mask, logprobs, strict=True) if not sampled)
            assert (ids, mask) in [(history[0], history[1]) for history in tokens_of(trajectory)]


def test_with_them_art_repeats_tool_calls_as_context(read, rollouts):
    good = rollouts[0]
    ((ids, mask, _),) = read["keep"]["tokenized"][good.rollout_id]
    ((expected, _, _),) = tokens_of(good)
    assert len(ids) > len(expected)
    assert sum(mask) == sum(token_histories(good)[0].loss_mask)


def test_groups_rewards_and_all_else_that_art_has_a_place_for_arrive(read, rollouts):
    (group, *others) = read["keep"]["groups"]
    assert not others
    assert group["metadata"] == {"art.group.id": "g"}
    assert [one["reward"] for one in group["trajectories"]] == [1.0, 0.5, 0.0, 0.75, 0.5]
    assert group["exceptions"] == [{"type": "error", "message": "ValueError: no rain", "traceback": ""}]
    good = group["trajectories"][0]
    assert (good["initial_policy_version"], good["final_policy_version"]) == (7, 7)
    assert good["metrics"] == {"tokens": 4.0}
    assert good["metadata"] == {
        "level": 3,
        "hard": True,
        "nested": '{"a":[1,null]}',
        "art.rollout.id": "r-good",
        "art.rollout.name": "weather",
        "art.group.id": "g",
        "art.split": "train",
        "art.training.step": 3,
    }
    assert good["logs"] == ["looked", "naïve"]
    assert good["tools"] == list(rollouts[0].tools)
    system, question, look, found, answer = good["messages_and_choices"]
    assert (system["role"], question["content"]) == ("system", samples.QUESTION.content)
    (call,) = look["message"]["tool_calls"]
    assert call["function"] == {"name": "look_up", "arguments": '{"city":"Zürich" }'}
    assert found == {"role": "tool", "content": "rain", "tool_call_id": call["id"]}
    assert (answer["finish_reason"], answer["message"]["content"]) == ("stop", "Rain.")


def test_every_history_is_there(read):
    branching = read["keep"]["groups"][0]["trajectories"][3]
    histories = [branching, *branching["additional_histories"]]
    contents = [history["messages_and_choices"][-1]["message"]["content"] for history in histories]
    assert sorted(contents) == ["I do not know.", "Rain.", "Yes."]
    assert contents[0] == "Rain."


def test_art_reads_the_log(read):
    assert read["log"] == {"trajectories/train/0003.parquet": [[0.0, 0.75, 0.5, 1.0, 0.5]]}
