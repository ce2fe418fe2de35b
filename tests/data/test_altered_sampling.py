"""How each completion was sampled stands beside its tokens, and the report counts logprobs of another distribution."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

import art_otel
from art_otel.calls import Logprobs
from art_otel.data.report import BatchReport
from art_otel.sampling import Sampling
from tests.data.token_rollouts import EVERYTHING, talk
from tests.trajectories.calls import with_sampled


def sampled(*parameters, mode="raw", logprob=-0.5, size=2):
    """A rollout of a call for each of the parameters; each sampled so many tokens of this logprob."""
    told = with_sampled(talk("r", *[size] * len(parameters)), lambda _: {"logprobs": Logprobs.of([logprob] * size)})
    calls = [
        structs.replace(call, parameters=asked, logprobs_mode=mode)
        for call, asked in zip(told.calls, parameters, strict=True)
    ]
    return replace(told, calls=tuple(calls))


def report_of(*trajectories, **options) -> BatchReport:
    batches = art_otel.batches(trajectories, **EVERYTHING | options)
    list(batches)
    return batches.report


def test_temperature_and_top_p_of_each_token():
    asked = {"temperature": 0.6, "top_p": 0.9, "top_k": 20}
    (batch,) = art_otel.batches([sampled(asked, {})], **EVERYTHING)
    assert batch.loss_mask.tolist() == [[False, True, True, False, True, True]]
    nan = np.float32(np.nan)
    np.testing.assert_array_equal(batch.temperature, np.float32([[1, 0.6, 0.6, 1, nan, nan]]))
    np.testing.assert_array_equal(batch.top_p, np.float32([[1, 0.9, 0.9, 1, nan, nan]]))
    (samplings,) = batch.samplings
    assert samplings == (
        Sampling(temperature=0.6, top_p=0.9, top_k=20, logprobs_mode="raw"),
        Sampling(logprobs_mode="raw"),
    )


def test_what_changes_nothing_stands_where_nothing_is_trained():
    trajectories = [sampled({"temperature": 0.6}), sampled({"temperature": 0.5}, {"temperature": 0.5})]
    for options in ({}, {"packed": True, "max_tokens": 12}):
        (batch,) = art_otel.batches(trajectories, **EVERYTHING | options)
        assert (batch.temperature[~batch.loss_mask] == 1).all()
        assert (batch.top_p[~batch.loss_mask] == 1).all()
    empty = batch.without_loss()
    assert (empty.temperature == 1).all()


@pytest.mark.parametrize("mode", ["raw", "tempered", "processed", None])
def test_completions_of_another_distribution_are_counted_by_what_their_logprobs_are(mode):
    one = sampled({"temperature": 0.3, "top_p": 0.5}, {}, {"temperature": 1, "top_p": 1}, mode=mode)
    assert report_of(one).altered_sampling == {mode or "unknown": 1}


def test_completions_without_logprobs_are_not_counted():
    one = sampled({"temperature": 0.3}, {"temperature": 0.3, "tool_choice": "required"})
    one = with_sampled(one, lambda turn: {} if turn.call else {"logprobs": None})
    assert report_of(one).altered_sampling == {}


@pytest.mark.parametrize(
    "asked", [{"allowed_token_ids": [65]}, {"logit_bias": {"5": -100}}, {"bad_words": ["no"]}, {"min_tokens": 4}]
)
def test_forced_tokens_are_constrained_and_keep_logprobs_that_are_the_policys_own(asked):
    for mode, is_known in (("raw", True), ("tempered", False), ("processed", False), (None, False)):
        one = sampled(asked, mode=mode)
        assert one.calls[0].is_constrained
        report = report_of(one)
        assert report.without_logprobs == (0 if is_known else 2)
        assert report.altered_sampling == ({"raw": 1} if is_known else {})
    assert report_of(one, constrained="mask").completions_skipped == {"constrained sampling": 1}


def test_completions_whose_logprobs_are_all_zero_are_counted_and_kept():
    report = report_of(sampled({}, {"temperature": 0.7}, logprob=0.0, size=40))
    assert report.zero_logprobs == 2
    assert report.trained_tokens == 80
    for asked, size in (({}, 8), ({"temperature": 0}, 40), ({"top_k": 1}, 40), ({"tool_choice": "required"}, 40)):
        assert report_of(sampled(asked, logprob=0.0, size=size)).zero_logprobs == 0
    assert report_of(sampled({}, size=40)).zero_logprobs == 0


def test_what_is_no_logprob_is_without_logprobs():
    one = with_sampled(sampled({}, size=2), lambda _: {"logprobs": Logprobs.of([-0.5, float("nan")])})
    assert report_of(one).without_logprobs == 1
