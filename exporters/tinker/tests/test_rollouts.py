"""Rollout summaries: every trajectory has a place of its own, every call a step with its trace."""

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel.exporting import ExportStats, export
from art_otel.testing import trajectories
from art_otel.trajectories import TOKEN_ROOT, PolicyVersions, Reward, rollout_traces
from art_otel_tinker.rollouts import NO_SPLIT, NO_STEP, TinkerRolloutsConfig, call_rewards, encode_rollouts
from tests.data.rollouts import agent_rollouts
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.exported import rewarded, usable
from tests.exporting.samples import branching, conversation, failed, group, samples, without_ids
from tests.trajectories.calls import with_sampled

GOLDEN = Path(__file__).parent.parent / "testdata" / "train_rollout_summaries.jsonl"
EVERYTHING = {"status": ("ok", "error")}
FILE = "iteration_000003/train_rollout_summaries.jsonl"
TRACE = {"prompt", "policy_response", "reward_data", "env_state", "extra"}


def encoded(*rollouts, **config) -> tuple[list[tuple[str, dict]], ExportStats]:
    records, stats = encoded_by(encode_rollouts, rewarded(rollouts), TinkerRolloutsConfig(**config))
    return [(path, json.loads(line)) for path, line in records], stats


def record_of(trajectory) -> dict:
    (((_, record),), _) = encoded(trajectory)
    return record


def given_reward(value, **fields) -> Reward:
    return Reward(**{"name": "reward", "value": value, "source": "evaluation", "time_ns": 1, **fields})


def test_the_golden_file(tmp_path):
    report = export(samples(), "tinker", tmp_path, format="rollouts", **EVERYTHING)
    assert (report.records, report.files) == (len(samples()), (str(tmp_path / FILE),))
    if os.environ.get("ART_OTEL_GOLDEN"):
        GOLDEN.write_bytes((tmp_path / FILE).read_bytes())
    assert (tmp_path / FILE).read_bytes() == GOLDEN.read_bytes()


@pytest.mark.long
@given(st.lists(trajectories(), max_size=4) | agent_rollouts())
def test_every_trajectory_has_a_place_and_every_call_a_step(rollouts):
    rollouts = usable(rollouts)
    records, _ = encoded(*rollouts)
    assert [record["art_otel"]["rollout_id"] for _, record in records] == [one.rollout_id for one in rollouts]
    members = defaultdict(list)
    for (path, record), trajectory in zip(records, rollouts, strict=True):
        members[path, record["group_idx"]].append(record["traj_idx"])
        assert len(record["steps"]) == len(trajectory.calls)
        assert [step["episode_done"] for step in record["steps"]][-1:] in ([], [True])
        for step, trace in zip(record["steps"], rollout_traces(trajectory), strict=True):
            assert step["trace"].keys() <= TRACE
            assert None not in step["trace"].values()
            assert ("prompt" in step["trace"]) == (trace.prompt is not None)
    assert all(places == list(range(len(places))) for places in members.values())
    groups = defaultdict(set)
    for path, number in members:
        groups[path].add(number)
    assert all(numbers == set(range(len(numbers))) for numbers in groups.values())


def test_groups_and_their_members_are_numbered_in_each_file():
    alone = conversation("r-alone", "Rain.", 1.0, group_id=None)
    again = conversation("r-again", "Rain.", 1.0, group_id=None)
    other = conversation("r-other", "Rain.", 1.0, group_id="h")
    later = conversation("r-later", "Rain.", 1.0, training_step=4)
    records, stats = encoded(*group(), alone, other, again, group()[0], later)
    assert not stats.changed
    assert [(path, record["group_idx"], record["traj_idx"]) for path, record in records] == [
        (FILE, 0, 0),
        (FILE, 0, 1),
        (FILE, 0, 2),
        (FILE, 1, 0),
        (FILE, 2, 0),
        (FILE, 3, 0),
        (FILE, 0, 3),
        ("iteration_000004/train_rollout_summaries.jsonl", 0, 0),
    ]


@pytest.mark.parametrize(
    ("split", "label", "name"),
    [
        ("train", "train", "train"),
        ("val", "eval/val", "eval_val"),
        ("eval/gsm8k", "eval/gsm8k", "eval_gsm8k"),
        ("eval_gsm8k", "eval/gsm8k", "eval_gsm8k"),
        ("../../etc/x\0", "eval/../../etc/x\0", "eval_.._.._etc_x_"),
        ("é" * 300, f"eval/{'é' * 300}", "eval__"),
        ("a" * 300, f"eval/{'a' * 300}", f"eval_{'a' * 100}"),
    ],
)
def test_splits(split, label, name, tmp_path):
    trajectory = conversation("r", "Rain.", 1.0, split=split)
    (((path, record),), _) = encoded(trajectory)
    assert path == f"iteration_000003/{name}_rollout_summaries.jsonl"
    assert record["split"] == label
    report = export([trajectory], "tinker", tmp_path, format="rollouts", split="*")
    assert report.files == (str(tmp_path / path),)


def test_files_are_whole_whatever_the_order(tmp_path):
    mixed = [conversation(f"r{number}", "Rain.", 1.0, training_step=number % 3) for number in range(9)]
    report = export(mixed, "tinker", tmp_path, format="rollouts")
    assert report.records == 9
    for step in range(3):
        path = tmp_path / f"iteration_{step:06d}/train_rollout_summaries.jsonl"
        found = [json.loads(line)["art_otel"]["rollout_id"] for line in path.read_text().splitlines()]
        assert found == [f"r{step}", f"r{step + 3}", f"r{step + 6}"]


def test_what_has_no_place_goes_where_the_options_say():
    nowhere = conversation("r", "Rain.", 1.0, split=None, training_step=None)
    before = conversation("r", "Rain.", 1.0, training_step=-1)
    records, stats = encoded(nowhere, before, split="val", iteration=5)
    assert [path for path, _ in records] == [
        "iteration_000005/eval_val_rollout_summaries.jsonl",
        "iteration_000005/train_rollout_summaries.jsonl",
    ]
    assert stats.changed == {NO_SPLIT: 1, NO_STEP: 2}


def test_a_step_has_the_reward_of_its_call_and_its_last_call_that_of_the_step():
    calls = [structs.replace(call, step=0) for call in conversation("r", "Rain.", None).calls]
    rewards = (
        given_reward(9.0, target=calls[0].span_id, step=0),
        given_reward(0.1, target=calls[0].span_id, step=0),
        given_reward(0.2, target=calls[1].span_id, step=0),
        given_reward(0.5, step=0, target="feed" * 4),
        given_reward(7.0, step=0, target="beef" * 4, target_kind="tool"),
        given_reward(7.0, step=4),
        given_reward(7.0, target=calls[0].span_id, choice=0),
        given_reward(7.0, target=calls[0].span_id, token_start=0, token_end=1),
        given_reward(7.0, name="style", target=calls[0].span_id),
        given_reward(None, label="good", target=calls[0].span_id),
    )
    fields = {"calls": tuple(calls), "rewards": rewards}
    trajectory = type(group()[0])(rollout_id="r", trace_id="ab" * 16, reward=2.0, **fields)
    assert call_rewards(trajectory) == [0.1, 0.7]
    record = record_of(trajectory)
    assert [step["reward"] for step in record["steps"]] == [0.1, 0.7]
    assert (record["total_reward"], record["final_reward"]) == (2.0, 2.0 - (0.1 + 0.7))
    # Raw floats, as they were given.
    assert record["steps"][0]["trace"]["reward_data"]["reward"] == 0.1


def test_rewards_that_nobody_gave_are_null():
    record = record_of(conversation("r", "Rain.", None))
    assert (record["total_reward"], record["final_reward"]) == (None, None)
    assert [step["reward"] for step in record["steps"]] == [None, None]
    endless = conversation("r", "Rain.", 1e308, rewards=(given_reward(-1e308, step=0),))
    assert record_of(endless)["final_reward"] is None


def test_the_final_reward_that_was_given_is_exact():
    given_later = (given_reward(0.1, step=0), given_reward(0.2, name="final_reward"))
    record = record_of(conversation("r", "Rain.", 0.1 + 0.2, rewards=given_later))
    assert record["final_reward"] == 0.2
    assert record["total_reward"] == record["steps"][0]["reward"] + record["final_reward"]


def test_lengths_are_those_of_the_ids_or_unknown():
    record = record_of(branching())
    lengths = [(step["ob_len"], step["ac_len"]) for step in record["steps"]]
    for (ob, ac), call in zip(lengths, branching().calls, strict=True):
        assert ob == len(call.prompt_token_ids)
        assert ac == (sum(len(choice.token_ids) for choice in call.choices) if call.choices else None)
    assert [(step["ob_len"], step["ac_len"]) for step in record_of(without_ids())["steps"]] == [(None, None)]
    assert record_of(failed())["art_otel"]["error"] == "ValueError: no rain"
    half = with_sampled(branching(), lambda turn: {"token_ids": None} if turn.choice else {})
    assert record_of(half)["steps"][0]["ac_len"] is None


def test_metrics_and_logs_of_the_environment_stand_where_tinker_has_them():
    call = structs.replace(
        without_ids().calls[0],
        env_state={"metrics": {"correct": 1.0}, "logs": {"said": "Rain"}, "reference_answer": "4"},
        extra={"termination": "eos"},
    )
    (step,) = record_of(type(group()[0])(rollout_id="r", trace_id="ab" * 16, calls=(call,)))["steps"]
    assert (step["metrics"], step["logs"]) == ({"correct": 1.0}, {"said": "Rain"})
    assert step["trace"]["env_state"] == {"reference_answer": "4"}
    assert step["trace"]["extra"] == {"termination": "eos"}
    odd = structs.replace(call, env_state={"metrics": 3}, prompt_token_node=TOKEN_ROOT)
    (step,) = record_of(type(group()[0])(rollout_id="r", trace_id="ab" * 16, calls=(odd,)))["steps"]
    assert (step["metrics"], step["trace"]["env_state"], step["ob_len"]) == ({}, {"metrics": 3}, 0)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 1e300])
def test_a_rollout_with_an_unusable_reward_is_left_out_and_told(reward, tmp_path):
    rollouts = [conversation("r", "Rain.", reward), conversation("s", "Sun.", 1.0)]
    report = export(rollouts, "tinker", tmp_path, format="rollouts")
    assert (report.records, report.trajectories_skipped) == (1, {"unusable reward": 1})


def test_traces_can_be_left_out():
    (((_, record),), _) = encoded(branching(), traces=False)
    with_traces = record_of(branching())
    for step in with_traces["steps"]:
        assert step.pop("trace")["prompt"]
    assert record == with_traces


@pytest.mark.parametrize(
    ("metadata", "tags"),
    [
        ({"tags": ["sums", 3]}, ["sums", "3"]),
        ({"tags": "no list"}, ["weather"]),
        ({}, ["weather"]),
    ],
)
def test_tags(metadata, tags):
    assert record_of(conversation("r", "Rain.", 1.0, metadata=metadata))["tags"] == tags


@pytest.mark.parametrize(
    ("version", "step"),
    [("7", 7), ("v7", None), ("²", None), ("", None), ("9" * 20, None), ("9" * 5000, None)],
)
def test_the_step_of_the_sampling_client(version, step):
    versions = PolicyVersions(first=version, last="9")
    assert record_of(conversation("r", "Rain.", 1.0, policy_version=versions))["sampling_client_step"] == step
    assert record_of(conversation("r", "Rain.", 1.0, policy_version=None, name=None))["tags"] == []


def test_the_step_of_the_sampling_client_is_unknown_where_a_call_s_version_is():
    known = conversation("r", "Rain.", 1.0, policy_version=PolicyVersions(first="7", last="7"))
    calls = [structs.replace(call, policy_version="7" if at else None) for at, call in enumerate(known.calls)]
    assert record_of(replace(known, calls=tuple(calls)))["sampling_client_step"] is None
