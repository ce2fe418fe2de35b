"""Rollouts: lines that NeMo Gym takes, and a reason for all that is left out."""

import json
from collections import Counter
from dataclasses import replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import Message, TokenIds
from art_otel.exporting import NO_LOGPROBS
from art_otel.testing import trajectories
from art_otel_nemogym.rollouts import APART, FURTHER, NO_CALL_ID, NO_MESSAGES, NO_REWARD, NOTHING_LEFT
from tests.data.rollouts import agent_rollouts
from tests.exporting.exported import EVERY, read_back
from tests.exporting.samples import (
    QUESTION,
    SYSTEM,
    asked,
    branching,
    conversation,
    found,
    group,
    looking,
    prompt_ids,
    rollout,
    said,
    without_logprobs,
)

SPELLED = '{"city": "Zürich"}'  # as a client sends back what it parsed


records_of = partial(read_back, "nemogym")


def trained_items(record: dict) -> list[dict]:
    return [item for item in record["response"]["output"] if "generation_token_ids" in item]


@settings(deadline=None)
@given(st.lists(trajectories(), max_size=3) | agent_rollouts())
def test_prompts_continue_what_was_sampled_and_all_is_trained_once(rollouts):
    records, _ = records_of(rollouts)
    sequences = art_otel.batches(rollouts, advantage=None, **EVERY).sequences()
    histories = {tuple(one.input_ids.tolist()) for one in sequences}
    for record in records:
        seen: list[int] = []
        for item in trained_items(record):
            assert item["prompt_token_ids"][: len(seen)] == seen
            seen = item["prompt_token_ids"] + item["generation_token_ids"]
            assert len(item["generation_token_ids"]) == len(item["generation_log_probs"])
        assert any(history[: len(seen)] == tuple(seen) for history in histories)
        json.dumps(record, allow_nan=False)
    keys = [(record["_ng_task_index"], record["_ng_rollout_index"]) for record in records]
    assert len(set(keys)) == len(keys)


def test_items_are_what_was_said_and_sampled():
    first = (SYSTEM, QUESTION)
    thinking = structs.replace(looking("Zürich"), content="I look.", reasoning="Where?")
    (call,) = thinking.tool_calls
    respelled = structs.replace(thinking, reasoning=None, tool_calls=(structs.replace(call, arguments=SPELLED),))
    second = (*first, respelled, found("rain"), QUESTION)
    going_on = TokenIds.of(prompt_ids((*first, thinking, found("rain"), QUESTION)))  # as a server that keeps its ids
    calls = [asked(0, first, thinking), structs.replace(asked(1, second, said("Rain.")), prompt_token_ids=going_on)]
    (record,), _ = records_of([rollout("r", calls, reward=1.0)])
    told = [(item["type"], "generation_token_ids" in item) for item in record["response"]["output"]]
    assert told == [
        ("reasoning", False),
        ("message", False),
        ("function_call", True),
        ("function_call_output", False),
        ("message", False),
        ("message", True),
    ]
    assert record["response"]["output"][2]["arguments"] == '{"city":"Zürich" }'
    assert [item["role"] for item in record["responses_create_params"]["input"]] == ["system", "user"]


def test_groups_are_tasks_and_histories_rollouts_of_them():
    other = conversation("r-other", "Snow.", 1.0, group_id="h")
    alone = conversation("r-alone", "Snow.", 1.0, group_id=None)
    later = conversation("r-later", "Snow.", 1.0, training_step=4)
    records, report = records_of([*group()[:2], other, branching(), alone, later], agent="guide")
    keys = [(record["_ng_task_index"], record["_ng_rollout_index"]) for record in records]
    assert keys == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (0, 4), (2, 0), (3, 0)]
    assert report.changed == Counter({FURTHER: 2})
    assert {record["agent_ref"]["name"] for record in records} == {"guide"}


def test_what_gives_no_record_is_counted():
    first = (SYSTEM, QUESTION)
    calls = [asked(0, first, said("Rain.")), asked(1, (*first, said("Rain."), QUESTION), said("Rain."))]
    untold = rollout("r-untold", [structs.replace(calls[0], input_messages=None)], reward=1.0)
    reworded = (SYSTEM, Message(role="user", content="Weather?"), said("Rain."), QUESTION)
    apart = structs.replace(asked(1, reworded, said("Rain.")), prompt_token_ids=calls[1].prompt_token_ids)
    nameless = structs.replace(
        looking("Zürich"), tool_calls=(structs.replace(looking("Zürich").tool_calls[0], id=None),)
    )
    told = [
        untold,
        rollout("r-apart", [calls[0], apart], reward=1.0),
        rollout("r-nameless", [asked(0, first, nameless)], reward=1.0),
        replace(without_logprobs(), reward=0.5),
        conversation("r-none", "Rain.", None),
    ]
    records, report = records_of(told)
    assert records == []
    assert prompt_ids(calls[1].input_messages) == calls[1].prompt_token_ids.tolist()
    reasons = {NO_MESSAGES: 1, APART: 1, NO_CALL_ID: 1, NOTHING_LEFT: 1, NO_REWARD: 1}
    assert report.trajectories_skipped == Counter(reasons)
    assert report.skipped == Counter(reasons | {NO_LOGPROBS: 1})
