"""Rollouts: rows and arrays for a DataProto, and a reason for all that is left out."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import TokenIds
from art_otel.data.credit import step_reward
from art_otel.errors import UsageError
from art_otel.testing import trajectories
from art_otel.trajectories import Reward
from art_otel.trajectories.lineage import recorded_call
from art_otel_verl.rollouts import END_CUT, NO_PROMPT, pad_rollouts
from tests.data.token_rollouts import rollouts as token_rollouts
from tests.data.token_rollouts import talk
from tests.exporting.exported import EVERY, read_back
from tests.exporting.samples import QUESTION, SYSTEM, asked, conversation, group, rollout, said, without_ids
from tests.trajectories.calls import trajectory_of


def rows_of(rollouts, choice=None, **told) -> tuple[list[dict], dict]:
    """The rows as they are read back, and the report."""
    return read_back("verl", rollouts, format="rollouts", choice={"advantage": None, **(choice or {})}, **told)


@pytest.mark.long
@settings(deadline=None)
@given(st.lists(trajectories(), max_size=3) | token_rollouts())
def test_prompt_and_response_are_the_history_up_to_its_last_trained_token(rollouts):
    rows, _ = rows_of(rollouts)
    sequences = list(art_otel.batches(rollouts, advantage=None, **EVERY).sequences())
    for row, sequence in zip(rows, [one for one in sequences if one.completions[0].start > 0], strict=True):
        ids, size = row["prompts"] + row["responses"], len(row["responses"])
        assert ids == sequence.input_ids[: len(ids)].tolist()
        assert [0] * len(row["prompts"]) + row["response_mask"] == sequence.loss_mask[: len(ids)].tolist()
        assert row["response_mask"][0] == row["response_mask"][-1] == 1
        assert sum(row["response_mask"]) == sequence.trained_tokens
        if row["rollout_log_probs"] is None:
            assert sequence.without_logprobs
        else:
            assert row["rollout_log_probs"] == sequence.logprobs[len(row["prompts"]) : len(ids)].tolist()
        if row["rm_scores"] is None:
            assert sequence.reward is None
        else:
            assert row["rm_scores"] == [*[0.0] * (size - 1), np.float32(sequence.reward)]
        assert row["advantages"] is None


@pytest.mark.long
@settings(deadline=None)
@given(token_rollouts())
def test_advantages_are_those_of_batches(rollouts):
    rows, _ = rows_of(rollouts, choice={"advantage": "grpo"})
    sequences = art_otel.batches(rollouts, advantage="grpo", **EVERY).sequences()
    for row, sequence in zip(rows, [one for one in sequences if one.completions[0].start > 0], strict=True):
        start = len(row["prompts"])
        assert row["advantages"] == sequence.advantages[start : start + len(row["responses"])].tolist()


def test_each_completion_can_have_its_own_reward():
    given_rewards = tuple(
        Reward(name="reward", value=value, step=step, source="evaluation", time_ns=0)
        for step, value in enumerate([0.25, 0.5])
    )
    stepped = conversation("r", "Rain.", None, rewards=given_rewards)
    (row,), _ = rows_of([stepped], reward_at="completions", choice={"credit": step_reward()})
    first, last = (len(turn.token_ids) for turn in stepped.turns)
    size = len(row["responses"])
    assert {at: score for at, score in enumerate(row["rm_scores"]) if score} == {first - 1: 0.25, size - 1: 0.5}
    assert row["response_mask"][size - last - 1] == 0
    (row,), _ = rows_of([stepped], choice={"credit": step_reward()})
    assert {at: score for at, score in enumerate(row["rm_scores"]) if score} == {size - 1: 0.5}


def test_a_completion_without_a_reward_leaves_the_row_without_scores():
    given_rewards = (Reward(name="reward", value=0.5, step=1, source="evaluation", time_ns=0),)
    stepped = conversation("r", "Rain.", None, rewards=given_rewards)
    (row,), _ = rows_of([stepped], reward_at="completions", choice={"credit": step_reward()})
    assert row["rm_scores"] is None


def test_rewards_of_spans_of_tokens_are_added():
    target = f"{2:016x}"
    part = Reward(name="style", value=0.25, target=target, token_start=1, token_end=3, source="evaluation", time_ns=0)
    judged = conversation("r", "Rain.", 1.0, rewards=(part,))
    (row,), _ = rows_of([judged], token_rewards="style")
    size, last = len(row["responses"]), len(judged.turns[1].token_ids)
    found = {at - size + last: score for at, score in enumerate(row["rm_scores"]) if score}
    assert found == {1: 0.25, 2: 0.25, last - 1: 1.0}
    (row,), report = rows_of([judged])
    assert sum(row["rm_scores"]) == 1.0
    assert not report.changed


def test_a_name_of_token_rewards_that_nobody_gave_is_counted():
    (row,), report = rows_of([conversation("r", "Rain.", 1.0)], token_rewards="stlye")
    assert sum(row["rm_scores"]) == 1.0
    assert report.changed == {"trajectories without a reward of the name token_rewards for any span of tokens": 1}


def test_what_has_no_group_is_compared_with_nothing_else():
    alone = conversation("g", "Rain.", 1.0, group_id=None)
    rows, _ = rows_of([*group(), alone, replace(alone, attempt=1)])
    assert [row["uid"] for row in rows] == [
        *["g of step 3"] * 3,
        f"rollout g of trace {alone.trace_id}",
        f"rollout g attempt 1 of trace {alone.trace_id}",
    ]


def test_runs_that_share_an_id_and_have_no_group_are_not_compared():
    alone = conversation("r", "Rain.", 1.0, group_id=None)
    other = replace(alone, trace_id="cd" * 16, reward=0.0)
    rows, _ = rows_of([alone, other])
    assert [row["uid"] for row in rows] == [f"rollout r of trace {trace}" for trace in (alone.trace_id, other.trace_id)]


def test_a_group_id_of_two_training_steps_is_compared_within_each():
    told = [("a", 0), ("b", 1), ("c", 0), ("d", None)]
    rows, _ = rows_of([conversation(name, "Rain.", 1.0, training_step=step) for name, step in told])
    assert [row["uid"] for row in rows] == ["g of step 0", "g of step 1", "g of step 0", "g"]


def test_what_gives_no_row_is_counted():
    first = (SYSTEM, QUESTION)
    second = (*first, said("a"), QUESTION)
    cut = rollout("r-cut", [asked(0, first, said("a")), asked(1, second, said("b"), error_type="Cut")])
    bare = talk("r-bare", 1)
    bare = trajectory_of([structs.replace(recorded_call(bare.calls[0]), prompt_token_ids=TokenIds())])
    rows, report = rows_of([cut, without_ids(), bare])
    assert [row["rollout_id"] for row in rows] == ["r-cut"]
    assert report.skipped == Counter({"no token ids": 1, "failed": 1, NO_PROMPT: 1})
    assert report.trajectories_skipped == Counter({"no token ids": 1, NO_PROMPT: 1})
    assert report.trajectories_used == 1
    assert report.changed == Counter({END_CUT: 1})


ROW = {
    "prompts": [1, 2],
    "responses": [3, 4, 5],
    "response_mask": [1, 0, 1],
    "rollout_log_probs": [-1.0, 0.0, -2.0],
    "rm_scores": [0.0, 0.0, 1.0],
    "advantages": None,
}
SHORT = {**ROW, "prompts": [6], "responses": [7], "response_mask": [1], "rollout_log_probs": [-3.0], "rm_scores": [0.5]}


def test_prompts_are_padded_on_the_left_and_responses_on_the_right():
    found = pad_rollouts([ROW, SHORT], prompt_length=3, pad_token_id=9)
    assert {name: array.tolist() for name, array in found.items()} == {
        "prompts": [[9, 1, 2], [9, 9, 6]],
        "responses": [[3, 4, 5], [7, 9, 9]],
        "response_mask": [[1, 0, 1], [1, 0, 0]],
        "input_ids": [[9, 1, 2, 3, 4, 5], [9, 9, 6, 7, 9, 9]],
        "attention_mask": [[0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]],
        "position_ids": [[0, 0, 1, 2, 3, 4], [0, 0, 0, 1, 1, 1]],
        "rollout_log_probs": [[-1.0, 0.0, -2.0], [-3.0, 0.0, 0.0]],
        "rm_scores": [[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]],
    }


def test_what_one_row_does_not_have_none_has():
    assert "rm_scores" not in pad_rollouts([ROW, {**SHORT, "rm_scores": None}])


@pytest.mark.parametrize(
    ("rows", "lengths", "told"),
    [
        ([], {}, "rollouts: none given"),
        ([ROW], {"prompt_length": 1}, "prompt_length=1: a row has 2 tokens"),
        ([SHORT, ROW], {"response_length": 2}, "response_length=2: a row has 3 tokens"),
    ],
)
def test_rows_that_make_no_array_are_an_error(rows, lengths, told):
    with pytest.raises(UsageError, match=told):
        pad_rollouts(rows, **lengths)


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("agent_loop", "import art_otel_verl.agent_loop"),
        ("sft_dataset", "import art_otel_verl.sft_dataset"),
        ("rollouts.load_rollouts", "import art_otel_verl.rollouts as r; r.load_rollouts('rollouts.parquet')"),
    ],
)
def test_without_verl_it_says_what_to_install(what, use):
    code = f"import sys; sys.modules['verl'] = sys.modules['torch'] = None; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ImportError: art_otel_verl.{what} needs verl" in done.stderr
