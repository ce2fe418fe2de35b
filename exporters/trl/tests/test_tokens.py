"""Rows of tokens: what is under the mask of a sequence is trained, and a reason for all that is left out."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import art_otel
from art_otel.calls import Choice, InferenceCall, TokenIds
from art_otel.errors import UsageError
from art_otel.exporting import ExportStats, export
from art_otel.testing import trajectories
from art_otel_trl.rollouts import NO_GROUP, OTHER_HISTORY, TOO_FEW, LiveRollouts, Replay, recorded_reward
from art_otel_trl.tokens import (
    END_CUT,
    FIRST,
    NO_PROMPT,
    ONLY_FIRST,
    encode_grpo,
    encode_sft,
)
from tests.data.rollouts import agent_rollouts
from tests.exporting.exported import EVERY, encoded
from tests.exporting.samples import (
    QUESTION,
    SYSTEM,
    asked,
    branching,
    conversation,
    failed,
    group,
    rollout,
    said,
)

any_rollouts = st.lists(trajectories(), max_size=3) | agent_rollouts()


def sequences(*rollouts) -> list:
    return list(art_otel.batches(rollouts, advantage=None, **EVERY).sequences())


def sft(*rollouts) -> tuple[list[dict], ExportStats]:
    return encoded(encode_sft, sequences(*rollouts))


def grpo(*rollouts) -> tuple[list[dict], ExportStats]:
    return encoded(encode_grpo, sequences(*rollouts))


def with_prompt(prompt: list[int], *, sampled: tuple[int, ...] = (7, 8), **fields):
    choice = Choice(index=0, message=said("a"), token_ids=TokenIds.of(sampled))
    call = InferenceCall(
        trace_id="ab" * 16,
        span_id="1" * 16,
        operation_name="chat",
        start_ns=1,
        end_ns=2,
        input_messages=(QUESTION,),
        prompt_token_ids=TokenIds.of(prompt),
        choices=(choice,),
    )
    return rollout("r", [call], **fields)


@pytest.mark.long
@given(any_rollouts)
def test_labels_are_the_ids_under_the_mask(rollouts):
    rows, stats = sft(*rollouts)
    given_sequences = [one for one in sequences(*rollouts) if one.loss_mask[1:].any()]
    assert len(given_sequences) == len(sequences(*rollouts)) - stats.skipped.total()
    for row, sequence in zip(rows, given_sequences, strict=True):
        labels = np.array(row["labels"])
        assert row["input_ids"] == sequence.input_ids.tolist()
        assert ((labels != -100) == sequence.loss_mask).all()
        assert (labels[sequence.loss_mask] == sequence.input_ids[sequence.loss_mask]).all()


@pytest.mark.long
@given(any_rollouts)
def test_prompt_and_completion_are_the_history_up_to_its_last_trained_token(rollouts):
    rows, stats = grpo(*rollouts)
    given_sequences = [one for one in sequences(*rollouts) if one.completions[0].start > 0]
    assert stats.skipped == Counter({NO_PROMPT: len(sequences(*rollouts)) - len(rows)} if stats.skipped else {})
    for row, sequence in zip(rows, given_sequences, strict=True):
        ids = row["prompt_ids"] + row["completion_ids"]
        assert ids == sequence.input_ids[: len(ids)].tolist()
        assert [0] * len(row["prompt_ids"]) + row["env_mask"] == sequence.loss_mask[: len(ids)].astype(int).tolist()
        assert row["env_mask"][0] == row["env_mask"][-1] == 1
        assert sum(row["env_mask"]) == sequence.trained_tokens
        known = [np.nan if logprob is None else logprob for logprob in row["logprobs"]]
        np.testing.assert_array_equal(known, sequence.logprobs[len(row["prompt_ids"]) : len(ids)])
        assert row["reward"] == sequence.reward


@pytest.mark.parametrize("file_format", ["sft", "grpo"])
def test_rollouts_with_unusable_rewards_are_left_out_and_told(tmp_path, file_format):
    rewards = [1.0, None, float("nan"), float("inf"), 1e300]
    rollouts = [conversation(f"r-{place}", "Rain.", reward) for place, reward in enumerate(rewards)]
    report = export(rollouts, "trl", tmp_path / "a.parquet", format=file_format)
    assert pq.read_table(tmp_path / "a.parquet")["reward"].to_pylist() == [1.0, None]
    assert report.trajectories_skipped == {"unusable reward": 3}


def test_a_sampled_first_token_is_told():
    (row,), stats = sft(with_prompt([]))
    assert row["labels"] == [7, 8]
    assert stats.changed == Counter({FIRST: 1})
    assert grpo(with_prompt([]))[1].skipped == Counter({NO_PROMPT: 1})


def test_a_first_token_alone_trains_nothing():
    assert sft(with_prompt([], sampled=(7,))) == ([], ExportStats(skipped=Counter({ONLY_FIRST: 1})))


def test_the_end_of_a_history_that_is_not_trained_is_cut():
    first = (SYSTEM, QUESTION)
    second = (*first, said("a"), QUESTION)
    calls = [asked(0, first, said("a")), asked(1, second, said("b"), error_type="Cut")]
    (row,), stats = grpo(rollout("r", calls))
    assert row["completion_ids"] == [*b"a", 260]
    assert stats.changed == Counter({END_CUT: 1})


def test_a_logprob_that_nobody_recorded_is_null(tmp_path):
    export([with_prompt([1])], "trl", tmp_path / "g.parquet", format="grpo")
    (row,) = pq.read_table(tmp_path / "g.parquet").to_pylist()
    assert row["logprobs"] == [None, None]
    assert row["reward"] is None


class Trainer(SimpleNamespace):
    """What a rollout_func asks of TRL's trainer."""

    def __init__(self, num_generations: int = 2, process: int = 0) -> None:
        accelerator = SimpleNamespace(process_index=process)
        tokenizer = SimpleNamespace(eos_token_id=260)
        super().__init__(num_generations=num_generations, accelerator=accelerator, processing_class=tokenizer)


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from("xyz")), max_size=12), st.integers(1, 4))
def test_every_row_is_in_one_chunk_or_counted(told, count):
    rows = [
        {"group_id": in_group, "rollout_id": name, "number": at, **dict.fromkeys(["reward", "prompt_ids"], at)}
        | dict.fromkeys(["completion_ids", "env_mask", "logprobs"], at)
        for at, (in_group, name) in enumerate(told)
    ]
    replay = Replay(rows, num_generations=count)
    prompts = [row["prompt"] for row in replay.prompts for _ in range(count)]
    given_rows = replay.rollout_func(prompts, Trainer(count))["reward"]
    assert len(set(given_rows)) == len(given_rows) == len(rows) - replay.skipped.total()
    for at in range(0, len(given_rows), count):
        assert len({rows[number]["group_id"] for number in given_rows[at : at + count]}) == 1
    assert replay.skipped[NO_GROUP] == [in_group for in_group, _ in told].count(None)


def test_a_chunk_compares_rollouts_of_one_training_step():
    told = [("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", None)]
    rows, _ = grpo(*(conversation(name, "Rain.", 1.0, training_step=step) for name, step in told))
    replay = Replay(rows, num_generations=2)
    names = replay.rollout_func([prompt["prompt"] for prompt in replay.prompts for _ in range(2)], Trainer())
    assert names["rollout_id"] == ["a", "c", "b", "d"]
    assert replay.skipped == Counter({TOO_FEW: 1})


def test_a_chunk_compares_rollouts_before_histories_of_one():
    rows, _ = grpo(branching(), *group())
    replay = Replay(rows, num_generations=2)
    names = replay.rollout_func([prompt["prompt"] for prompt in replay.prompts for _ in range(2)], Trainer())
    assert names["rollout_id"] == ["r-branching", "r-good", "r-fair", "r-bad", "r-branching", "r-branching"]
    assert Replay(rows, num_generations=4).skipped == Counter({TOO_FEW: 2})


def test_processes_share_a_chunk():
    rows, _ = grpo(*group())
    replay = Replay(rows, num_generations=3)
    (prompt,) = (row["prompt"] for row in replay.prompts)
    found = [replay.rollout_func([prompt], Trainer(3, process)) for process in range(3)]
    assert [part["rollout_id"] for part in found] == [["r-good"], ["r-fair"], ["r-bad"]]
    assert recorded_reward(**found[0], prompts=[prompt], completions=["Rain."]) == [1.0]


def test_what_a_replay_does_not_have_is_an_error(tmp_path):
    export(group(), "trl", tmp_path / "g.parquet", format="grpo")
    replay = Replay.read(tmp_path / "g.parquet", num_generations=3)
    with pytest.raises(UsageError, match="the trainer compares 2 completions, this replay holds chunks of 3"):
        replay.rollout_func(["g #0"], Trainer(2))
    with pytest.raises(UsageError, match="prompt 'other': no chunk of this replay"):
        replay.rollout_func(["other"], Trainer(3))
    with pytest.raises(UsageError, match="num_generations=0"):
        Replay([], num_generations=0)


def test_live_rollouts_give_a_row_for_each_prompt():
    played = [branching(), failed(), with_prompt([]), with_prompt([1], reward=0.5)]
    found = LiveRollouts(lambda _prompts, _trainer: played).rollout_func(["?"] * 4, Trainer())
    main = max(sequences(branching()), key=lambda one: one.trained_tokens)
    assert found["prompt_ids"][0] + found["completion_ids"][0] == main.input_ids.tolist()
    assert found["prompt_ids"][1:] == [[260], [260], [1]]
    assert found["env_mask"][1:] == [[0], [0], [1, 1]]
    assert found["logprobs"][1:] == [[0.0], [0.0], [None, None]]
    assert found["reward"] == [0.75, None, None, 0.5]


def test_live_rollouts_want_one_trajectory_for_each_prompt():
    with pytest.raises(UsageError, match="play: it returned 0 trajectories for 1 prompts"):
        LiveRollouts(lambda _prompts, _trainer: []).rollout_func(["?"], Trainer())


def test_what_a_live_step_skips_is_counted_and_each_reason_logged_once(caplog):
    gap = replace(conversation("r-gap", "Rain.", 1.0), incomplete_reasons={"spans missing": 1})
    played = [branching(), failed(), with_prompt([]), gap, group()[0]]
    histories = len(sequences(branching()))
    live = LiveRollouts(lambda _prompts, _trainer: played)
    for _ in range(2):
        live.rollout_func(["?"] * 5, Trainer())
    counted = {
        f"histories: {OTHER_HISTORY}": 2 * (histories - 1),
        "trajectories: status": 2,
        f"histories: {NO_PROMPT}": 2,
        "trajectories: incomplete: spans missing": 2,
    }
    assert histories > 1
    assert live.skipped == counted
    assert [record.args[0] for record in caplog.records] == list(counted)
    forgiving = LiveRollouts(lambda _prompts, _trainer: [gap], allow_incomplete=["spans missing"])
    assert forgiving.rollout_func(["?"], Trainer())["reward"] == [1.0]
    assert not forgiving.skipped


def test_a_file_of_another_format_is_no_replay(tmp_path):
    export(group(), "trl", tmp_path / "sft.parquet", format="sft")
    with pytest.raises(UsageError, match=r"sft\.parquet: has no prompt_ids, .*--format grpo"):
        Replay.read(tmp_path / "sft.parquet", num_generations=2)
