"""Samples: the ids, masks, logprobs and advantages that one computes from the calls alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import RoutedExperts, TokenIds
from art_otel.errors import UsageError
from art_otel.exporting import NO_LOGPROBS, ExportStats, export
from art_otel.testing import trajectories
from art_otel_primerl import read_samples
from art_otel_primerl.samples import NOTHING_LEFT, RESERVED, SOME_EXPERTS, TEMPERATURE, SamplesConfig, encode_samples
from tests.data.rollouts import agent_rollouts
from tests.data.token_rollouts import stored
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.exported import scored
from tests.exporting.samples import (
    QUESTION,
    SYSTEM,
    asked,
    branching,
    conversation,
    found,
    group,
    looking,
    rollout,
    said,
    without_logprobs,
)

READER = Path(__file__).parent.parent / "art_otel_primerl" / "read.py"
STREAMS = ("token_ids", "mask", "logprobs", "temperatures")


def encoded(*rollouts, advantage="centered", **options) -> tuple[list[dict], ExportStats]:
    items = scored(rollouts, advantage=advantage, allow_incomplete=True, status=("ok", "error"))
    return encoded_by(encode_samples, items, SamplesConfig(**options))


@pytest.mark.long
@given(st.lists(trajectories(), max_size=3) | agent_rollouts())
def test_every_sample_is_of_one_length_and_trains_something(rollouts):
    records, _ = encoded(*rollouts, advantage=None)
    for record in records:
        assert {len(record[name]) for name in STREAMS} == {len(record["token_ids"])}
        assert any(record["mask"])
        assert all(mask or not logprob for mask, logprob in zip(record["mask"], record["logprobs"], strict=True))
        assert min(record["temperatures"]) > 0
        assert record["env_name"] not in ("", "all")
        assert "advantages" not in record
        json.dumps(record, allow_nan=False)


def computed(calls, advantage: float) -> dict:
    """The sample of calls each of which continues the one before, from their ids and logprobs alone."""
    ids: list[int] = []
    streams: dict[str, list] = {"mask": [], "logprobs": [], "advantages": []}
    for call in calls:
        prompt, (choice,) = call.prompt_token_ids.tolist(), call.choices
        assert prompt[: len(ids)] == ids
        answer = choice.token_ids.tolist()
        between = len(prompt) - len(ids)
        ids = prompt + answer
        streams["mask"] += [False] * between + [True] * len(answer)
        streams["logprobs"] += [0.0] * between + choice.logprobs.tolist()
        streams["advantages"] += [0.0] * between + [advantage] * len(answer)
    return {"token_ids": ids, **streams}


def test_several_turns_with_tools_and_interior_masks():
    records, stats = encoded(*group())
    rewards = {"r-good": 1.0, "r-fair": 0.5, "r-bad": 0.0}
    mean = sum(rewards.values()) / 3
    assert [one["rollout_id"] for one in records] == list(rewards)
    for record, member in zip(records, group(), strict=True):
        expected = computed(member.calls, rewards[member.rollout_id] - mean)
        for name, values in expected.items():
            assert record[name] == values, name
        starts = np.flatnonzero(np.diff([0, *map(int, record["mask"])]) == 1)
        assert len(starts) == 2
        assert (record["env_name"], record["group_id"], record["training_step"]) == ("weather", "g", 3)
    assert +stats.changed == {TEMPERATURE: 6}


def test_each_branch_trains_what_no_other_does():
    records, _ = encoded(branching())
    trained = [turn for turn in branching().turns if turn.tokens_untrained is None]
    assert sum(sum(record["mask"]) for record in records) == sum(len(turn.token_ids) for turn in trained)
    assert len({tuple(record["token_ids"]) for record in records}) == len(records) == 3


def test_a_token_has_the_temperature_that_it_was_sampled_with():
    second = (SYSTEM, QUESTION, looking("Zürich"), found("rain"))
    third = (*second, said("Wait."), QUESTION)
    calls = [
        asked(0, second[:2], second[2], parameters={"temperature": 0.5}),
        asked(1, second, said("Wait."), parameters={"temperature": 0}),
        asked(2, third, said("Rain."), parameters={"temperature": 2}),
    ]
    (record,), stats = encoded(rollout("r", calls, reward=1.0), temperature=0.7)
    found_at = np.array(record["temperatures"])[np.array(record["mask"])].tolist()
    first, middle, last = (len(call.choices[0].token_ids) for call in calls)
    assert found_at == [0.5] * first + [0.7] * middle + [2.0] * last
    assert set(np.array(record["temperatures"])[~np.array(record["mask"])].tolist()) == {1.0}
    assert +stats.changed == {TEMPERATURE: 1}


def test_a_completion_without_logprobs_is_context():
    records, stats = encoded(without_logprobs(), advantage=None)
    assert records == []
    assert stats.skipped == {NO_LOGPROBS: 1, NOTHING_LEFT: 1}
    assert stats.trajectories_skipped == {NOTHING_LEFT: 1}


def test_the_environment_is_the_name_unless_it_is_said():
    def env(name, **options):
        (record,), stats = encoded(conversation("r", "Rain.", 1.0, name=name), **options)
        return record["env_name"], stats.changed[RESERVED]

    assert env("weather") == ("weather", 0)
    assert env(None) == ("art-otel", 0)
    assert env("all") == ("art-otel", 1)
    assert env("weather", env_name="mine") == ("mine", 0)


def test_samples_are_made_by_the_names_of_their_fields(tmp_path):
    export(group(), "primerl", tmp_path / "samples.jsonl")
    made = list(read_samples(tmp_path / "samples.jsonl", dict))
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert made == [{name: line[name] for name in (*STREAMS, "env_name", "advantages")} for line in lines]
    with pytest.raises(ImportError):
        next(read_samples(tmp_path / "samples.jsonl"))


def test_the_reader_runs_where_nothing_of_art_otel_is_installed(tmp_path):
    export(group(), "primerl", tmp_path / "samples.jsonl")
    code = "import json, runpy, sys; read = runpy.run_path(sys.argv[1])['read_samples']"
    code += "; print(json.dumps(list(read(sys.argv[2], dict))))"
    command = [sys.executable, "-I", "-S", "-c", code, READER, tmp_path / "samples.jsonl"]  # the standard library alone
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(read_samples(tmp_path / "samples.jsonl", dict))


def routed(number: int, prompt, answer, known: int | None = None, width: int = 1):
    """A call whose experts are known of the last `known` of its tokens but one, of all unless it says how many."""
    call = asked(number, prompt, answer)
    (choice,) = call.choices
    count = len(call.prompt_token_ids) + len(choice.token_ids) - 1
    count = count if known is None else known
    numbers = (np.arange(count * 4) + number).astype(f"<u{width}")
    experts = RoutedExperts(data=numbers.tobytes(), layers=2, experts=2, width=width)
    return structs.replace(call, choices=(structs.replace(choice, routed_experts=experts),))


@pytest.mark.parametrize("width", [1, 2])
def test_experts_are_those_of_every_token_of_the_history(tmp_path, width):
    second = (SYSTEM, QUESTION, looking("Zürich"), found("rain"))
    calls = [routed(0, second[:2], second[2], width=width), routed(1, second, said("Rain."), width=width)]
    one = rollout("r", calls, reward=1.0)
    with stored([one]) as dataset:
        report = export(dataset, "primerl", tmp_path / "samples.jsonl")
    (sample,) = read_samples(tmp_path / "samples.jsonl", dict)
    told = sample["routed_experts"]
    rows = np.frombuffer(told["data"], told["dtype"]).reshape(told["shape"])
    assert told["dtype"] == "int16"
    assert rows.shape == (len(sample["token_ids"]), 2, 2)
    first, last = (call.choices[0].routed_experts for call in calls)
    expected = np.frombuffer(last.data, f"<u{width}").reshape(-1, 2, 2).copy()
    expected[: len(first)] = np.frombuffer(first.data, f"<u{width}").reshape(-1, 2, 2)
    assert np.array_equal(rows, [*expected, expected[-1]])
    assert SOME_EXPERTS not in report.changed


def test_experts_of_some_tokens_are_of_no_use():
    second = (SYSTEM, QUESTION)
    (record,), stats = encoded(rollout("r", [routed(0, second, said("Rain."), known=3)], reward=1.0))
    assert "routed_experts" not in record
    assert stats.changed[SOME_EXPERTS] == 1


def test_what_a_trained_token_could_have_been_is_handed_over(tmp_path):
    call = asked(0, (SYSTEM, QUESTION), said("Rain."))
    (choice,) = call.choices
    masks = tuple(TokenIds.of([*range(at + 1), 99]) for at in range(len(choice.token_ids)))
    masked = structs.replace(call, choices=(structs.replace(choice, sampling_mask=masks),))
    with stored([rollout("r", [masked], reward=1.0)]) as dataset:
        export(dataset, "primerl", tmp_path / "samples.jsonl")
    (sample,) = read_samples(tmp_path / "samples.jsonl", dict)
    ids, counts = (np.frombuffer(sample["sampling_mask"][name], "<i4") for name in ("ids", "counts"))
    assert ids.tolist() == [one for mask in masks for one in mask.tolist()]
    assert counts[sample["mask"]].tolist() == [len(mask) for mask in masks]
    assert not counts[~np.array(sample["mask"])].any()
    assert len(counts) == len(sample["token_ids"])


def test_the_environment_can_be_told_as_an_option(tmp_path):
    export(group(), "primerl", tmp_path / "samples.jsonl", options={"env_name": "mine"})
    assert {json.loads(line)["env_name"] for line in (tmp_path / "samples.jsonl").read_text().splitlines()} == {"mine"}


@pytest.mark.parametrize("options", [{"temperature": 0}, {"env_name": ""}])
def test_an_option_that_cannot_be_is_refused(tmp_path, options):
    with pytest.raises(UsageError):
        export(group(), "primerl", tmp_path / "samples.jsonl", options=options)


def test_a_file_that_is_another_is_named_with_its_line(tmp_path):
    file = tmp_path / "others.jsonl"
    file.write_text('{"messages": []}\n')
    with pytest.raises(ValueError, match=r"others\.jsonl:1: KeyError\('token_ids'\); give a file of `art-otel export"):
        next(read_samples(file, dict))
