"""Rollouts: records that SkyRL takes, and a reason for all that is left out."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import TokenIds
from art_otel.data.credit import step_reward
from art_otel.exporting import export
from art_otel.testing import trajectories
from art_otel.trajectories import Reward
from art_otel.trajectories.lineage import recorded_call
from art_otel_skyrl import generator_output, read_rollouts
from art_otel_skyrl.rollouts import END_CUT, NO_PROMPT, NO_REWARD
from tests.data.token_rollouts import rollouts as token_rollouts
from tests.data.token_rollouts import talk
from tests.exporting.exported import EVERY, read_back
from tests.exporting.samples import (
    QUESTION,
    SYSTEM,
    asked,
    branching,
    conversation,
    group,
    rollout,
    said,
    without_logprobs,
)
from tests.trajectories.calls import trajectory_of

READER = Path(__file__).parent.parent / "art_otel_skyrl" / "read.py"


records_of = partial(read_back, "skyrl")


@pytest.mark.long
@settings(deadline=None)
@given(st.lists(trajectories(), max_size=3) | token_rollouts())
def test_prompt_and_response_are_the_history_up_to_its_last_trained_token(rollouts):
    records, report = records_of(rollouts)
    sequences = art_otel.batches(rollouts, advantage=None, **EVERY).sequences()
    kept = [one for one in sequences if one.completions[0].start > 0 and one.reward is not None]
    for record, sequence in zip(records, kept, strict=True):
        ids, size = record["prompt_token_ids"] + record["response_ids"], len(record["response_ids"])
        assert ids == sequence.input_ids[: len(ids)].tolist()
        assert [0] * len(record["prompt_token_ids"]) + record["loss_mask"] == sequence.loss_mask[: len(ids)].tolist()
        assert record["loss_mask"][0] == record["loss_mask"][-1] == 1
        assert sum(record["loss_mask"]) == sequence.trained_tokens
        assert record["reward"] == sequence.reward
        if record["rollout_logprobs"] is None:
            assert sequence.without_logprobs
        else:
            assert record["rollout_logprobs"] == sequence.logprobs[len(ids) - size : len(ids)].tolist()
    named = [(one["instance_id"], one["repetition_id"]) for one in records]
    assert sorted(name for name, one in zip(named, records, strict=True) if one["is_last_step"]) == sorted(set(named))
    assert len(set(named)) == report.trajectories_used


def test_rows_of_a_group_stand_together_and_its_rollouts_have_numbers(tmp_path):
    other = conversation("r-other", "Snow.", 1.0, group_id="h")
    export([*group()[:2], other, group()[2], branching()], "skyrl", tmp_path / "r.jsonl")
    output = read_rollouts(tmp_path / "r.jsonl", lambda instance, number: (instance, number))
    told = [(f"{group} of step 3", number) for group, number in zip("ggggggh", (0, 1, 2, 3, 3, 3, 0), strict=True)]
    assert output["trajectory_ids"] == told
    assert output["is_last_step"] == [True, True, True, False, False, True, True]
    assert output["stop_reasons"] == ["stop"] * 7
    assert output["rewards"] == [1.0, 0.5, 0.0, 0.75, 0.75, 0.75, 1.0]
    assert {len(values) for values in output.values() if values is not None} == {7}


def test_what_has_no_group_is_compared_with_nothing_else():
    alone = conversation("g", "Rain.", 1.0, group_id=None)
    again = replace(alone, attempt=1)
    elsewhere = replace(alone, trace_id="cd" * 16)
    records, _ = records_of([*group(), alone, again, elsewhere])
    assert len({one["instance_id"] for one in records}) == 4


def test_a_group_id_of_two_training_steps_is_compared_within_each():
    told = [("a", 0), ("b", 1), ("c", 0), ("d", None)]
    records, _ = records_of([conversation(name, "Rain.", 1.0, training_step=step) for name, step in told])
    assert [one["instance_id"] for one in records] == ["g of step 0", "g of step 1", "g of step 0", "g"]


def test_logprobs_are_of_all_rows_or_of_none():
    some = [group()[0], replace(without_logprobs(), reward=0.5, group_id="g")]
    records, _ = records_of(some)
    assert [record["rollout_logprobs"] is None for record in records] == [False, True]
    assert generator_output(records, lambda *parts: parts)["rollout_logprobs"] is None
    assert generator_output(records[:1], lambda *parts: parts)["rollout_logprobs"] == [records[0]["rollout_logprobs"]]


def rewarded(*steps: int):
    given_rewards = tuple(
        Reward(name="reward", value=0.25 * (step + 1), step=step, source="evaluation", time_ns=0) for step in steps
    )
    return conversation("r", "Rain.", None, rewards=given_rewards)


def test_each_completion_can_have_its_own_reward():
    stepped = rewarded(0, 1)
    (record,), _ = records_of([stepped], reward_at="completions", choice={"credit": step_reward()})
    first, last = (len(turn.token_ids) for turn in stepped.turns)
    size = len(record["response_ids"])
    assert {at: reward for at, reward in enumerate(record["reward"]) if reward} == {first - 1: 0.25, size - 1: 0.5}
    assert record["loss_mask"][size - last - 1] == 0
    (record,), _ = records_of([stepped], choice={"credit": step_reward()})
    assert record["reward"] == 0.5


def test_what_gives_no_record_is_counted():
    first = (SYSTEM, QUESTION)
    second = (*first, said("a"), QUESTION)
    cut = rollout("r-cut", [asked(0, first, said("a")), asked(1, second, said("b"), error_type="Cut")], reward=1.0)
    bare = talk("r-bare", 1)
    bare = trajectory_of([structs.replace(recorded_call(bare.calls[0]), prompt_token_ids=TokenIds())])
    unrewarded = conversation("r-none", "Rain.", None)
    records, report = records_of([cut, bare, unrewarded])
    assert [record["rollout_id"] for record in records] == ["r-cut"]
    assert report.skipped == Counter({"failed": 1, NO_PROMPT: 1, NO_REWARD: 1})
    assert report.trajectories_skipped == Counter({NO_PROMPT: 1, NO_REWARD: 1})
    assert report.changed == Counter({END_CUT: 1})


def test_a_completion_without_a_reward_leaves_out_a_history_of_rewards_of_completions():
    records, report = records_of([rewarded(1)], reward_at="completions", choice={"credit": step_reward()})
    assert records == []
    assert report.trajectories_skipped == Counter({NO_REWARD: 1})


def test_without_skyrl_an_id_must_be_told(tmp_path):
    export(group(), "skyrl", tmp_path / "r.jsonl")
    with pytest.raises(ImportError):
        read_rollouts(tmp_path / "r.jsonl")


def test_the_reader_runs_where_nothing_of_art_otel_is_installed(tmp_path):
    export(group(), "skyrl", tmp_path / "r.jsonl")
    code = "import json, runpy, sys; read = runpy.run_path(sys.argv[1])['read_rollouts']"
    code += "; print(json.dumps(read(sys.argv[2], lambda *id: id)))"
    command = [sys.executable, "-I", "-S", "-c", code, READER, tmp_path / "r.jsonl"]  # the standard library alone
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == read_rollouts(tmp_path / "r.jsonl", lambda *parts: [*parts])


def test_a_file_that_is_another_is_named(tmp_path):
    file = tmp_path / "others.jsonl"
    file.write_text('{"messages": []}\n')
    with pytest.raises(ValueError, match=r"others\.jsonl: KeyError\('instance_id'\); give a file of `art-otel export"):
        read_rollouts(file, lambda *_: None)
