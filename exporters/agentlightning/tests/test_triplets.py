"""Trajectories as triplets, without Agent Lightning."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from art_otel import batches
from art_otel.calls import Logprobs, Usage
from art_otel.data.credit import step_reward
from art_otel.exporting import ExportStats, ScoredTrajectory
from art_otel.testing import trajectories
from art_otel.trajectories import Reward, token_histories
from art_otel_agentlightning import EXPORTER
from art_otel_agentlightning.triplets import EARLIER, NO_LOGPROBS, NULL, TripletsConfig, encode_triplets
from tests.examples import examples
from tests.exporting.golden import check_golden
from tests.exporting.samples import (
    LOOK_UP,
    QUESTION,
    SYSTEM,
    asked,
    branching,
    completion_ids,
    conversation,
    failed,
    found,
    group,
    looking,
    prompt_ids,
    rollout,
    said,
    samples,
    without_ids,
    without_logprobs,
)

TESTDATA = Path(__file__).parent.parent / "testdata"
EACH = TripletsConfig(reward="each")


def records(rollouts, config=TripletsConfig(), stats=None, credit="outcome_reward"):  # noqa: B008 # frozen
    stream = batches(
        rollouts,
        advantage=None,
        credit=credit,
        allow_incomplete=True,
        status=("ok", "error", "cancelled", "unfinished"),
        models="*",
        images="placeholders",
    )
    items = (ScoredTrajectory(trajectory=one, turn_rewards=rewards) for one, rewards in stream.trajectories())
    return list(encode_triplets(items, config, stats or ExportStats()))


def test_a_rollout_of_two_calls():
    (record,) = records(group()[:1])
    first = (SYSTEM, QUESTION)
    second = (*first, looking("Zürich"), found("rain"))
    assert record["rollout_id"] == "r-good"
    assert record["final_reward"] == 1.0
    assert record["logs"] == ["looked", "naïve"]
    assert record["metadata"] == {
        "art.rollout.name": "weather",
        "art.group.id": "g",
        "art.split": "train",
        "art.training.step": 3,
        "trace_id": "ab" * 16,
        "status": "ok",
        "art.metric.tokens": 4.0,
        "art.metadata.level": 3,
        "art.metadata.hard": True,
        "art.metadata.nested": {"a": [1, None]},
    }
    one, two = record["triplets"]
    assert (one["reward"], two["reward"]) == (None, 1.0)
    assert one["prompt"]["token_ids"] == prompt_ids(first)
    assert two["prompt"]["token_ids"] == prompt_ids(second)
    assert one["response"]["token_ids"] == completion_ids(looking("Zürich"))
    assert two["response"]["token_ids"] == completion_ids(said("Rain."))
    assert [token["logprob"] for token in two["response"]["logprobs"]] == [-1 - at / 4 for at in range(6)]
    assert two["response"]["logprobs"][0]["token"] == f"token_id:{ord('R')}"
    assert two["response"]["log_probs"] == [-1 - at / 4 for at in range(6)]
    (answer,) = one["response"]["raw_content"]
    assert answer["tool_calls"][0]["function"]["arguments"] == '{"city":"Zürich" }'
    assert answer["finish_reason"] == "tool_calls"
    assert [message["role"] for message in two["prompt"]["raw_content"]] == ["system", "user", "assistant", "tool"]
    assert two["metadata"] == {
        "request": {"model": "policy", "tools": [LOOK_UP]},
        "response": {"finish_reason": "stop"},
        "response_id": None,
        "span_id": f"{2:016x}",
        "step": 1,
        "choice": 0,
        "policy_version": "7",
    }


def test_what_is_known_of_a_call():
    call = asked(
        0,
        (QUESTION,),
        said("Rain."),
        agent="helper",
        parameters={"temperature": 0.5},
        response_id="c-1",
        response_model="policy-7",
        usage=Usage(input_tokens=3),
        tools=None,
        request_model=None,
    )
    (record,) = records([rollout("r", [call])])
    (one,) = record["triplets"]
    assert one["metadata"]["request"] == {"temperature": 0.5}
    assert one["metadata"]["response"]["usage"]["input_tokens"] == 3
    assert (one["metadata"]["response_id"], one["metadata"]["agent_name"]) == ("c-1", "helper")
    assert record["final_reward"] is None


def test_every_choice_is_a_triplet_and_failed_calls_are_not():
    (record,) = records([branching()])
    told = [one["response"]["raw_content"][0]["content"] for one in record["triplets"]]
    assert told == [None, "I do not know.", "Yes.", "Rain."]
    assert [one["metadata"]["choice"] for one in record["triplets"]] == [0, 1, 0, 0]
    assert [one["reward"] for one in record["triplets"]] == [None, None, None, 0.75]
    (other,) = records([failed()])
    assert (other["metadata"]["status"], other["metadata"]["error"]) == ("error", "ValueError: no rain")


def test_what_has_no_ids_is_left_out_and_counted():
    stats = ExportStats()
    assert records([without_ids()], stats=stats) == []
    assert stats.trajectories_skipped == {"no token ids": 1}
    assert +stats.skipped == {"no token ids": 1}


@pytest.mark.parametrize("value", [None, float("-inf"), float("nan")])
def test_unknown_logprobs_are_absent(value):
    trajectory = without_logprobs()
    if value is not None:
        turn = trajectory.turns[0]
        given = Logprobs.of([value, *[-1.0] * (len(turn.token_ids) - 1)])
        trajectory = replace(trajectory, turns=(msgspec.structs.replace(turn, logprobs=given),))
    stats = ExportStats()
    (record,) = records([trajectory], stats=stats)
    assert "logprobs" not in record["triplets"][0]["response"]
    assert record["triplets"][0]["response"]["log_probs"] is None
    assert +stats.changed == Counter({NO_LOGPROBS: 1, NULL.format("no reward"): 1})


def test_rewards_of_steps():
    given = [
        Reward(name="reward", value=value, step=step, source="evaluation", time_ns=1)
        for step, value in enumerate((0.25, 0.75))
    ]
    trajectory = replace(group()[0], rewards=tuple(given))
    (record,) = records([trajectory], EACH, credit=step_reward())
    assert [one["reward"] for one in record["triplets"]] == [0.25, 0.75]
    assert record["final_reward"] == 0.75
    stats = ExportStats()
    (record,) = records([trajectory], stats=stats, credit=step_reward())
    assert [one["reward"] for one in record["triplets"]] == [None, 0.75]
    assert +stats.changed == {EARLIER: 1}


def test_a_last_step_without_a_reward_takes_none_away():
    given = Reward(name="reward", value=0.25, step=0, source="evaluation", time_ns=1)
    trajectory = replace(group()[0], rewards=(given,))
    (record,) = records([trajectory], EACH, credit=step_reward())
    assert [one["reward"] for one in record["triplets"]] == [0.25, None]
    assert record["final_reward"] == 0.25


def test_images_and_no_raw_content():
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "url": "https://a.example/b.png"},
        {"type": "image", "data": "AAAA", "mime_type": "image/png"},
        {"type": "image_url", "image_url": 3},
    ]
    seen = msgspec.structs.replace(QUESTION, parts=json.dumps(parts))
    (record,) = records([rollout("r", [asked(0, (seen,), said("Rain."))])], TripletsConfig(raw_content=False))
    (one,) = record["triplets"]
    assert one["prompt"].keys() == {"token_ids", "image_urls"}
    assert one["prompt"]["image_urls"] == ["https://a.example/b.png", "data:image/png;base64,AAAA"]
    assert one["response"].keys() == {"token_ids", "log_probs", "logprobs"}


def test_messages_that_nobody_recorded():
    call = msgspec.structs.replace(asked(0, (QUESTION,), said("Rain.")), input_messages=None)
    trajectory = rollout("r", [call])
    turn = msgspec.structs.replace(trajectory.turns[0], message=None)
    (record,) = records([replace(trajectory, turns=(turn,))])
    (one,) = record["triplets"]
    assert (one["prompt"]["raw_content"], one["response"]["raw_content"]) == (None, None)


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (None, "no reward"),
        (float("nan"), "unusable reward"),
        (float("-inf"), "unusable reward"),
        (1e300, "unusable reward"),
    ],
)
def test_a_reward_that_their_trainer_would_take_for_0_is_told(reward, reason):
    stats = ExportStats()
    (record,) = records([conversation("r", "Rain.", reward)], stats=stats)
    assert record["final_reward"] is None
    assert stats.changed == Counter({NULL.format(reason): 1})


def test_golden(tmp_path):
    check_golden(TESTDATA / "triplets.jsonl", samples(), EXPORTER, "triplets", tmp_path)


@settings(deadline=None, max_examples=examples(60))
@given(trajectories())
def test_every_trained_completion_is_one_response(trajectory):
    stats = ExportStats()
    marked = [trajectory.calls[turn.call].marked_untrained is not None for turn in trajectory.turns]
    told = [one for record in records([trajectory], stats=stats) for one in record["triplets"]]
    expected = [
        (history.token_ids.tolist()[: span.start], history.token_ids.tolist()[span.start : span.end])
        for history in token_histories(trajectory)
        for span in history.spans
        if span.trained and span.start < span.end and not marked[span.turn]
    ]
    given = [(one["prompt"]["token_ids"], one["response"]["token_ids"]) for one in told]
    assert Counter(map(str, given)) == Counter(map(str, expected))
    completions = 0 if all(marked) else len(trajectory.turns)  # of one that is marked whole nothing is asked
    assert completions == len(told) + sum(stats.skipped.values())
    for one in told:
        assert len(one["response"].get("logprobs", one["response"]["token_ids"])) == len(one["response"]["token_ids"])
