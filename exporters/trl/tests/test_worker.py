"""The worker of AsyncGRPOTrainer: every history of every rollout is a row, and no sampled token is lost."""

import asyncio
import json
import os
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import art_otel
from art_otel.errors import UsageError
from art_otel.exporting import NO_LOGPROBS
from art_otel_trl.worker import RolloutWorker, TrlSample
from tests.exporting.samples import branching, failed, group, without_ids, without_logprobs
from tests.exporting.tokenizer import saved_tokenizer
from tests.trainers.environment import trainer_python

from .test_train import REQUIREMENTS, ROOT

PLAYED = [branching(), *group(), without_ids(), failed()]


def sampled_tokens() -> list[int]:
    """The ids of every completion that is to be trained: of turns that did not fail, of rollouts that did not."""
    turns = [turn for one in PLAYED if one.status == "ok" for turn in one.turns if turn.tokens_untrained is None]
    return [token for turn in turns if turn.token_ids is not None for token in turn.token_ids.tolist()]


def rows_of_groups(worker: RolloutWorker, rows: int) -> list[TrlSample]:
    worker.start()
    try:
        return [worker.rollout_buffer.get(timeout=30) for _ in range(rows)]
    finally:
        worker.stop()


def test_every_history_is_a_row_with_the_advantage_of_its_rollout():
    async def play(prompt: str):
        asked.append(prompt)
        return PLAYED

    asked: list[str] = []
    worker = RolloutWorker(play, ["a", "b"], max_waiting=9)
    worker.update_model_version(3)
    rows = rows_of_groups(worker, 12)
    assert asked[:3] == ["a", "b", "a"]
    assert [row.group_id for row in rows] == [0] * 6 + [1] * 6
    assert {row.model_version for row in rows} == {3}
    trained = [token for row in rows[:6] for token in row.input_ids[row.completion_mask == 1].tolist()]
    assert Counter(trained) == Counter(sampled_tokens())
    rewards = [0.75, 1.0, 0.5, 0.0, 0.5]  # that of a rollout without ids counts in the baseline
    compared = (np.array(rewards) - np.mean(rewards)) / (np.std(rewards) + 1e-6)
    assert [row.advantage for row in rows[:6]] == pytest.approx([*[compared[0]] * 3, *compared[1:4]])
    assert [row.metrics["reward"] for row in rows[:6]] == [0.75] * 3 + rewards[1:4]
    groups = worker.skipped["trajectories: status"]
    reasons = ("trajectories: status", "trajectories: no token ids", "completions: no token ids")
    assert worker.skipped == dict.fromkeys(reasons, groups)


def test_completions_without_logprobs_are_counted():
    async def play(_: object):
        return [*group(), replace(without_logprobs(), reward=0.5)]

    worker = RolloutWorker(play, [None], advantage="centered")
    rows = rows_of_groups(worker, 3)
    assert [row.advantage for row in rows] == [0.5, 0.0, -0.5]
    assert set(worker.skipped) == {f"completions: {NO_LOGPROBS}"}


def test_what_play_raises_ends_the_training():
    async def play(_: object):
        raise ValueError("no such task")

    worker = RolloutWorker(play, [1])
    worker.start()
    worker._thread.join(timeout=30)
    with pytest.raises(RuntimeError, match="play: it raised ValueError\\('no such task'\\)"):
        worker.check_health(60)
    worker.stop()
    with pytest.raises(UsageError, match="prompts: none given"):
        RolloutWorker(play, [])


def test_a_group_that_does_not_end_is_told_and_can_be_left():
    left: list[str] = []

    async def play(_: object):
        try:
            await asyncio.sleep(600)
        finally:
            left.append("left")
        return []

    worker = RolloutWorker(play, [1], concurrent_groups=2)
    worker.start()
    worker.check_health(60)
    time.sleep(0.2)
    with pytest.raises(RuntimeError, match="play: no group has ended for 0 seconds"):
        worker.check_health(0.01)
    worker.stop()
    assert left == ["left", "left"]


@pytest.mark.trainer
def test_a_step_of_trl_trains_every_token_and_is_the_step_by_hand(tmp_path):
    saved_tokenizer(tmp_path / "model")
    python = trainer_python("trl", "trl==1.16.0", *REQUIREMENTS)
    script = Path(__file__).with_name("step_with_worker.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parents[1])])}
    command = [python, script, tmp_path / "model"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["seen"]["rows"] == len(list(art_otel.batches(PLAYED).sequences())) == 6
    assert Counter(told["seen"]["trained"]) == Counter(sampled_tokens())
    assert told["moved"] > 1e-2
    assert told["apart"] < 1e-6
