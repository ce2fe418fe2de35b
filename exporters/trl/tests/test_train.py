"""TRL's own trainers on our files: what they train on is what was sampled."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import art_otel
from art_otel.data.sft import message_batches
from art_otel.exporting import TokenSequence, export
from art_otel_trl.rollouts import NO_GROUP, TOO_FEW
from tests.exporting.samples import QUESTION, SYSTEM, asked, found, group, looking, prompt_ids, rollout, said, samples
from tests.exporting.tokenizer import saved_tokenizer
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

ROOT = Path(__file__).parents[3]
REQUIREMENTS = (
    "torch==2.13.0",
    "transformers==5.23.0",
    "datasets==4.8.5",
    "accelerate==1.15.0",
    "msgspec>=0.22",
    "zstandard>=0.23",
)
RELEASES = ("trl==1.16.0", "trl==1.14.2")
"""The newest and the newest before it that trains on a CPU: the loss of 1.15.0 needs Triton."""
FIRST = (SYSTEM, QUESTION, looking("Zürich"))
FORKED = rollout(
    "r-forked",
    [
        asked(0, FIRST[:2], FIRST[2]),
        asked(1, (*FIRST, found("rain")), said("Rain.")),
        asked(2, (*FIRST, found("sun")), said("Sun.")),
    ],
    group_id=None,
)
"""Two histories share their first answer."""

ROLLOUTS = [*samples(), FORKED]
TEXT = {"tool_arguments": "text"}
FILES = {
    "sft": ("sft", {}),
    "grpo": ("grpo", {}),
    "chat": ("chat", {}),
    "chat-text": ("chat", TEXT),
    "messages": ("chat", {"layout": "messages"}),
    "messages-text": ("chat", {"layout": "messages", **TEXT}),
    "dpo": ("dpo", {}),
    "dpo-text": ("dpo", TEXT),
}


@pytest.fixture(scope="module", params=RELEASES)
def trained(request, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("trl")
    saved_tokenizer(folder / "tokenizer")
    for name, (file_format, config) in FILES.items():
        export(ROLLOUTS, "trl", folder / f"{name}.parquet", format=file_format, options=config)
    python = trainer_python("trl", request.param, *REQUIREMENTS)
    script = Path(__file__).with_name("train_with_trl.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parents[1])])}
    done = subprocess.run(
        [python, script, folder], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def sampled_sequences() -> list[TokenSequence]:
    return list(art_otel.batches(ROLLOUTS, advantage=None).sequences())


def labels_of(sequence) -> list[int]:
    return np.where(sequence.loss_mask, sequence.input_ids, -100).tolist()


def every_completion() -> list[list[int]]:
    """The sampled ids of every turn whose call did not fail, of the trajectories that are exported."""
    turns = [turn for one in ROLLOUTS if one.status == "ok" for turn in one.turns]
    return sorted(turn.token_ids.tolist() for turn in turns if turn.token_ids is not None)


def trained_runs(rows: list[dict]) -> list[list[int]]:
    """The runs of trained tokens of the rows."""
    runs = []
    for row in rows:
        before = -100
        for label in row["labels"]:
            if label != -100 and before == -100:
                runs.append([])
            if label != -100:
                runs[-1].append(label)
            before = label
    return sorted(runs)


def test_sft_trains_exactly_the_sampled_tokens(trained):
    rows = trained["sft"]["rows"]
    assert [row["input_ids"] for row in rows] == [one.input_ids.tolist() for one in sampled_sequences()]
    assert [row["labels"] for row in rows] == [labels_of(one) for one in sampled_sequences()]
    assert trained_runs(rows) == every_completion()
    assert trained["sft"]["moved"]


def test_the_batch_of_sft_holds_the_same_labels(trained):
    (batch,) = trained["sft"]["seen"]
    trained_ids = [[label for label in labels if label != -100] for labels in batch["labels"]]
    assert sorted(trained_ids) == sorted(one.input_ids[one.loss_mask].tolist() for one in sampled_sequences())


@pytest.mark.parametrize(("name", "again"), [("chat", 0), ("messages", 1)])
def test_chat_trains_every_answer(trained, name, again):
    """Answers that two histories share are trained once where they are the prompt, and twice in one list."""
    talks = list(message_batches(ROLLOUTS).examples())
    rows = trained[name]["rows"]
    without_ids = [*b"Rain.", 260]
    shared = [FORKED.turns[0].token_ids.tolist()] * again
    assert len(rows) == len(talks)
    assert trained_runs(rows) == sorted([*every_completion(), without_ids, *shared])
    assert trained[name]["moved"]


def test_chat_has_the_ids_that_the_server_had(trained):
    expected = {tuple(one.input_ids.tolist()) for one in sampled_sequences()}
    assert expected <= {tuple(row["input_ids"]) for row in trained["chat"]["rows"]}


@pytest.mark.parametrize("name", ["chat", "messages"])
def test_datasets_gives_the_messages_as_they_were(trained, name):
    """Arguments are objects with their own keys, and messages have only what they had."""
    for row, talk in zip(trained["objects"][name], message_batches(ROLLOUTS).examples(), strict=True):
        given = row["messages"] if name == "messages" else row["prompt"] + row["completion"]
        expected = json.loads(json.dumps(talk.messages))
        for message in expected:
            message["content"] = message["content"] or ""
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        assert given == expected
        assert json.loads(row["tools"] or "[]") == list(talk.tools)


def test_dpo_compares_the_best_and_the_worst(trained):
    good, _, bad = group()
    (row,) = trained["dpo"]["rows"]
    last = good.turns[-1]
    assert row["prompt_ids"] == good.calls[last.call].prompt_token_ids.tolist()
    assert row["chosen_ids"] == last.token_ids.tolist()
    assert row["rejected_ids"] == bad.turns[-1].token_ids.tolist()
    assert trained["dpo"]["moved"]
    (told,) = trained["objects"]["dpo"]
    assert [told["chosen_rollout_id"], told["rejected_rollout_id"]] == ["r-good", "r-bad"]


def unpadded(batch: dict, row: int) -> dict:
    keep = np.array(batch["completion_mask"][row], bool)
    prompt = np.array(batch["prompt_ids"][row])[np.array(batch["prompt_mask"][row], bool)]
    told = {name: np.array(batch[name][row])[keep].tolist() for name in ("completion_ids", "tool_mask")}
    logprobs = np.array(batch["sampling_per_token_logps"][row])[keep].tolist()
    return {"ids": [*prompt.tolist(), *told["completion_ids"]], "mask": told["tool_mask"], "logprobs": logprobs}


@pytest.mark.parametrize(("name", "rewards"), [("replayed", [1.0, 0.5, 0.0, 0.75]), ("live", [1.0, 0.5, 0.0])])
def test_grpo_steps_on_the_recorded_tokens(trained, name, rewards):
    (batch,) = trained[name]["seen"]
    sequences = sampled_sequences()[: len(rewards)]
    for row, sequence in enumerate(sequences):
        seen = unpadded(batch, row)
        start, end = sequence.completions[0].start, sequence.completions[-1].end
        assert seen["ids"] == sequence.input_ids.tolist()
        assert seen["mask"] == sequence.loss_mask[start:end].astype(int).tolist()
        assert seen["logprobs"] == sequence.logprobs[start:end].tolist()
    spread = np.std(rewards, ddof=1) + 1e-4
    advantages = (np.array(rewards) - np.mean(rewards)) / spread
    assert batch["advantages"][: len(rewards)] == pytest.approx(advantages.tolist(), abs=1e-5)
    assert trained[name]["moved"]


def test_what_is_in_no_chunk_is_counted(trained):
    assert trained["replayed"]["skipped"] == {NO_GROUP: 3, TOO_FEW: 2}


def test_a_rollout_without_tokens_is_worth_nothing_in_a_live_step(trained):
    (batch,) = trained["live"]["seen"]
    assert batch["advantages"][3] == 0.0
    assert sum(np.array(batch["tool_mask"][3]) * np.array(batch["completion_mask"][3])) == 0
    assert trained["live"]["skipped"] == {"trajectories: no token ids": 1, "completions: no token ids": 1}


def test_the_samples_prompts_are_what_the_tokenizer_says():
    call = group()[0].calls[0]
    assert call.prompt_token_ids.tolist() == prompt_ids(call.input_messages)
