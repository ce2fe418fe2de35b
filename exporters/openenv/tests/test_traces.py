"""Traces: a turn for each trained completion, and a reason for all that is left out."""

from collections import Counter
from dataclasses import replace
from functools import partial
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import Logprobs, TokenIds
from art_otel.exporting import NO_LOGPROBS
from art_otel.testing import trajectories
from art_otel_openenv.traces import IMPOSSIBLE, NO_PROMPT
from tests.data.rollouts import agent_rollouts
from tests.exporting.exported import EVERY, read_back
from tests.exporting.samples import QUESTION, SYSTEM, asked, branching, rollout, said, without_logprobs

traces_of = partial(read_back, "openenv")


@settings(deadline=None)
@given(st.lists(trajectories(), max_size=3) | agent_rollouts())
def test_every_trained_completion_with_logprobs_is_a_turn(rollouts):
    traces, report = traces_of(rollouts)
    sequences = list(art_otel.batches(rollouts, advantage=None, **EVERY).sequences())
    completions = [
        (one.input_ids[: span.start].tolist(), one.input_ids[span.start : span.end].tolist())
        for one in sequences
        for span in one.completions
    ]
    written = [(turn["prompt_token_ids"], turn["completion_token_ids"]) for trace in traces for turn in trace["turns"]]
    assert not Counter(map(str, written)) - Counter(map(str, completions))
    problems = (NO_LOGPROBS, NO_PROMPT, IMPOSSIBLE)
    assert len(completions) - len(written) == sum(report.skipped[problem] for problem in problems)
    for trace in traces:
        assert trace["schema_version"] == 1
        assert len({turn["node_id"] for turn in trace["turns"]}) == len(trace["turns"])
        for turn in trace["turns"]:
            prompt, completion = turn["prompt_token_ids"], turn["completion_token_ids"]
            assert turn["loss_mask"] == [0] * len(prompt) + [1] * len(completion)
            assert len(turn["per_token_logps"]) == len(completion)
            assert all(-inf < logprob <= 0 for logprob in turn["per_token_logps"])


def test_a_turn_says_what_was_asked_and_answered():
    (trace,), _ = traces_of([branching()])
    turn = trace["turns"][-1]
    assert [message["role"] for message in turn["request"]["messages"]] == ["system", "user", "assistant", "tool"]
    assert turn["request"]["tools"][0]["function"]["name"] == "look_up"
    (choice,) = turn["response"]["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Rain.", "stop")
    assert turn["metadata"] == {
        "reward": 0.75,
        "rollout_id": "r-branching",
        "group_id": "g",
        "training_step": 3,
        "policy_version": "7",
        "model": "policy",
        "sampling_params": {},
    }


@pytest.mark.parametrize("logprob", [0.5, -inf])
def test_what_openenv_refuses_is_counted(logprob):
    call = asked(0, (SYSTEM, QUESTION), said("a"))
    (choice,) = call.choices
    wrong = structs.replace(call, choices=(structs.replace(choice, logprobs=Logprobs.of([logprob, -1.0])),))
    bare = structs.replace(call, prompt_token_ids=TokenIds.of([]))
    told = [rollout("r-wrong", [wrong]), rollout("r-bare", [bare]), replace(without_logprobs(), reward=1.0)]
    traces, report = traces_of(told)
    assert traces == []
    assert report.trajectories_skipped == {IMPOSSIBLE: 1, NO_PROMPT: 1, NO_LOGPROBS: 1}
