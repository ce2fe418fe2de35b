"""ART reads what we write for it, and trains on exactly the sampled tokens."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from art_otel.calls import TokenIds
from art_otel.exporting import export
from art_otel.trajectories import Trajectory, token_histories
from tests.exporting import samples
from tests.exporting.tokenizer import saved_tokenizer
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

PYTHONS = {"openpipe-art==0.5.23": "3.12", "openpipe-art==0.5.22": "3.12", "openpipe-art==0.5.18": "3.11"}
"""The newest release and the one before, and the newest for Python 3.11."""
RENDERS = "openpipe-art==0.5.18"
"""It renders and tokenizes the context anew; later ones take the server's tokens."""
WANTED = (
    "torch==2.13.0",
    "transformers>=4.51,<6",
    "jinja2>=3.1",
    "pillow>=10",
    "duckdb>=1.0,<2",
    "pyarrow>=18",
)
EVERYTHING = {"status": ("ok", "error")}


@pytest.fixture(scope="module")
def rollouts() -> list[Trajectory]:
    return samples.samples()


def drifted() -> Trajectory:
    """The server saw other tokens than it had sampled: the second prompt does not begin with the first answer."""
    first = (samples.SYSTEM, samples.QUESTION)
    second = (*first, samples.looking("Zürich"), samples.found("rain"))
    look, answer = samples.asked(0, first, second[2]), samples.asked(1, second, samples.said("Rain."))
    ids = answer.prompt_token_ids.tolist()
    ids[ids.index(samples.CALL) + 1] += 1
    return samples.rollout("r-drifted", [look, structs.replace(answer, prompt_token_ids=TokenIds.of(ids))], reward=0.25)


@pytest.fixture(scope="module", params=PYTHONS)
def version(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def read(rollouts, version, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("art")
    python = trainer_python("art-tokenize", version, *WANTED, version=PYTHONS[version])
    export(rollouts, "art", folder / "keep.jsonl", **EVERYTHING)
    export(rollouts, "art", folder / "exact.jsonl", **EVERYTHING, options={"tool_calls": "drop"})
    export([drifted()], "art", folder / "drifted.jsonl")
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


def judged(rollouts: list[Trajectory]) -> list[Trajectory]:
    """Those that ART compares with each other."""
    return [one for one in rollouts if one.reward is not None and one.status == "ok"]


def trained(ids: list[int], mask: list[int], logprobs: list[float]) -> list[tuple]:
    return [(token, logprob) for token, sampled, logprob in zip(ids, mask, logprobs, strict=True) if sampled]


def test_the_tokenizer_gives_the_servers_prompts(tmp_path):
    from transformers import AutoTokenizer  # noqa: PLC0415 # it imports torch

    tokenizer = AutoTokenizer.from_pretrained(saved_tokenizer(tmp_path))
    messages = [{"role": "system", "content": "You look."}, {"role": "user", "content": "Zürich? 🌦"}]
    found = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert found == samples.prompt_ids([samples.Message(**message) for message in messages])


def tokenized(read: dict, file: str, trajectory: Trajectory) -> list[tuple]:
    """What ART made of a trajectory, as `tokens_of` has it."""
    return [tuple(history) for history, _ in read[file]["tokenized"].get(trajectory.rollout_id, [])]


@pytest.mark.parametrize("file", ["keep", "exact"])
def test_art_trains_on_exactly_the_sampled_tokens(read, rollouts, file):
    for trajectory in rollouts:
        expected = tokens_of(trajectory) if trajectory in judged(rollouts) else []
        found = tokenized(read, file, trajectory)
        assert sorted(trained(*history) for history in expected) == sorted(trained(*history) for history in found)


@pytest.mark.parametrize("file", ["keep", "exact"])
def test_the_context_is_the_servers_too(read, rollouts, version, file):
    """Of 0.5.18 only without tool calls beside their tokens."""
    if version == RENDERS and file == "keep":
        good = rollouts[0]
        ((ids, mask, _),) = tokenized(read, file, good)
        ((expected, expected_mask, _),) = tokens_of(good)
        assert len(ids) > len(expected)
        assert sum(mask) == sum(expected_mask)
        return
    for trajectory in rollouts:
        for ids, mask, logprobs in tokenized(read, file, trajectory):
            assert np.isnan(logprobs).tolist() == [not sampled for sampled in mask]
            assert (ids, mask) in [(history[0], history[1]) for history in tokens_of(trajectory)]


def test_a_prompt_that_does_not_begin_with_what_was_sampled_is_another_sequence(read, version):
    """0.5.18 does not know what the server saw; it makes one history of both."""
    trajectory = drifted()
    expected, found = tokens_of(trajectory), tokenized(read, "drifted", trajectory)
    assert len(expected) == 2
    if version == RENDERS:
        assert trained(*found[0]) == [pair for history in expected for pair in trained(*history)]
        return
    assert [history[:2] for history in found] == [history[:2] for history in expected]
    assert [trained(*history) for history in found] == [trained(*history) for history in expected]


def test_rewards_advantages_and_weights_are_those_of_the_group(read, rollouts):
    """The advantage is GRPO's with the population's deviation; a rollout's weight is shared by its trained tokens."""
    rewards = np.array([trajectory.reward for trajectory in judged(rollouts)])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    assert np.abs(advantages).min() > 0
    for trajectory, advantage in zip(judged(rollouts), advantages, strict=True):
        lengths = [sum(mask) for _, mask, _ in tokens_of(trajectory)]
        worths = [worth for _, worth in read["keep"]["tokenized"].get(trajectory.rollout_id, [])]
        assert len(worths) == len(lengths)
        for worth in worths:
            assert worth == pytest.approx([trajectory.reward, advantage, 1 / sum(lengths)], rel=1e-6)


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
    assert read["log"]["file"] == "trajectories/train/0003.parquet"
    assert read["log"]["rewards"] == [[0.0, 0.75, 0.5, 1.0, 0.5]]


def test_the_log_trains_what_the_lines_train(read, version):
    """Those that were ok are the same objects; 0.5.18 reads messages alone, of which it trains nothing."""

    def members(groups: list[dict]) -> dict[str, dict]:
        return {one["metadata"]["art.rollout.id"]: one for group in groups for one in group["trajectories"]}

    if version == RENDERS:
        assert read["log"]["tokenized"] == {}
        return
    assert members(read["log"]["groups"]) == members(read["log"]["kept"])
    assert [group["metadata"] for group in read["log"]["groups"]] == [{"art.group.id": "g"}]
    assert read["log"]["tokenized"] == read["keep"]["tokenized"]
