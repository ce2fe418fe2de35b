"""Datums: one token ahead of the history, and trained exactly where a token was sampled that has a logprob."""

import json
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel import batches
from art_otel.calls import TokenIds
from art_otel.exporting import NO_LOGPROBS, ExportStats, export
from art_otel.testing import trajectories
from art_otel.trajectories import token_histories
from art_otel_tinker.datums import FIRST, NOTHING_LEFT, encode_datums
from tests.data.rollouts import agent_rollouts
from tests.data.token_rollouts import trainable
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.samples import asked, branching, group, rollout, said, without_logprobs

ARRAYS = ("model_input", "target_tokens", "logprobs", "mask")


def encoded(*rollouts, advantage="centered") -> tuple[list[dict], ExportStats]:
    source = batches(
        rollouts, advantage=advantage, allow_incomplete=True, status=("ok", "error"), images="placeholders"
    )
    return encoded_by(encode_datums, source.sequences())


def history_of(record: dict) -> list[int]:
    return [record["model_input"][0], *record["target_tokens"]]


@given(st.lists(trajectories(), max_size=3) | agent_rollouts())
def test_every_datum_is_a_history_trained_where_it_can_be(rollouts):
    records, stats = encoded(*rollouts, advantage=None)
    for record in records:
        assert {len(record[name]) for name in ARRAYS} == {len(record["model_input"])}
        assert record["model_input"][1:] == record["target_tokens"][:-1]
        assert set(record["mask"]) <= {0.0, 1.0}
        assert 1.0 in record["mask"]
        assert all(mask or not logprob for mask, logprob in zip(record["mask"], record["logprobs"], strict=True))
        assert "advantages" not in record
        json.dumps(record, allow_nan=False)
    trained = Counter(
        (record["rollout_id"], token, logprob)
        for record in records
        for token, mask, logprob in zip(record["target_tokens"], record["mask"], record["logprobs"], strict=True)
        if mask
    )
    expected = Counter(
        (one.rollout_id, token, logprob)
        for one in map(trainable, rollouts)
        if one.status in ("ok", "error")
        for history in token_histories(one)
        for span in history.spans
        if span.trained and (known := one.turns[span.turn].logprobs) is not None and len(known) == span.end - span.start
        for token, logprob in zip(history.token_ids.tolist()[span.start : span.end], known.tolist(), strict=True)
    )
    assert trained <= expected
    # What is missing is the first token of a history, which has nothing before it.
    alone = stats.skipped[NOTHING_LEFT]
    assert stats.changed[FIRST] <= (expected - trained).total() <= stats.changed[FIRST] + alone


def test_advantages_stand_under_the_mask():
    records, stats = encoded(*group())
    assert not stats.skipped
    by_rollout = {"r-good": 0.5, "r-fair": 0.0, "r-bad": -0.5}
    for record in records:
        expected = np.where(np.array(record["mask"]) > 0, by_rollout[record["rollout_id"]], 0.0)
        assert record["advantages"] == expected.tolist()
    assert [(one["group_id"], one["reward"], one["policy_version"]) for one in records] == [
        ("g", 1.0, "7"),
        ("g", 0.5, "7"),
        ("g", 0.0, "7"),
    ]


def test_each_branch_trains_what_no_other_does():
    records, _ = encoded(branching())
    sampled = sum(len(turn.token_ids) for turn in branching().turns if turn.tokens_untrained is None)
    assert sum(sum(record["mask"]) for record in records) == sampled
    assert len({tuple(history_of(record)) for record in records}) == len(records) == 3


def test_a_completion_without_logprobs_is_left_out_alone():
    records, stats = encoded(without_logprobs(), advantage=None)
    assert records == []
    assert stats.skipped == {NO_LOGPROBS: 1, NOTHING_LEFT: 1}
    first = branching().calls[0].input_messages
    second = (*first, said("Wait."), structs.replace(first[1], content="And?"))
    calls = [asked(0, first, said("Wait."), logprobs=False), asked(1, second, said("Rain."))]
    (record,), stats = encoded(rollout("r-half", calls, reward=1.0), advantage=None)
    assert stats.skipped == {NO_LOGPROBS: 1}
    assert sum(record["mask"]) == len(b"Rain.") + 1


def test_a_rollout_without_a_datum_is_left_out(tmp_path):
    report = export([*group(), without_logprobs()], "tinker", tmp_path / "datums.jsonl", advantage=None)
    assert (report.records, report.trajectories_used) == (3, 3)
    assert report.trajectories_skipped == {NO_LOGPROBS: 1}


def test_the_first_token_has_nothing_to_be_sampled_from():
    call = structs.replace(asked(0, (), said("ab")), prompt_token_ids=TokenIds())
    (record,), stats = encoded(rollout("r-first", [call], reward=1.0))
    assert history_of(record) == call.choices[0].token_ids.tolist()
    assert record["mask"] == [1.0, 1.0]
    assert stats.changed == {FIRST: 1}
    alone = structs.replace(call.choices[0], token_ids=TokenIds.of([5]), logprobs=call.choices[0].logprobs.of([-1.0]))
    records, stats = encoded(rollout("r-one", [structs.replace(call, choices=(alone,))], reward=1.0))
    assert records == []
    assert stats.skipped == {NOTHING_LEFT: 1}


def test_the_advantage_is_tinker_s_unless_asked(tmp_path):
    report = export(group(), "tinker", tmp_path / "centered.jsonl")
    assert (report.format, report.records) == ("datums", 3)
    export(group(), "tinker", tmp_path / "grpo.jsonl", advantage="grpo")
    found = {
        name: {max(json.loads(line)["advantages"]) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()}
        for name in ("grpo", "centered")
    }
    assert found["centered"] == {0.5, 0.0}
    assert max(found["grpo"]) > 1
