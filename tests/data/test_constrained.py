"""Log probabilities under a grammar are not the policy's: a forced token has 0.0 (G2 of vLLM 0.32)."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

import art_otel
from art_otel.calls import Logprobs
from art_otel.errors import UsageError
from tests.data.token_rollouts import EVERYTHING, talk
from tests.trajectories.calls import with_sampled

FREE = [
    {},
    {"tool_choice": "auto"},
    {"tool_choice": "none"},
    {"tool_choice": {"type": "auto"}},
    {"response_format": {"type": "text"}},
    {"text": {"format": {"type": "text"}, "verbosity": "low"}},
]
CONSTRAINED = [
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "look"}}},
    {"tool_choice": {"type": "any"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    {"response_format": {"type": "json_object"}},
    {"text": {"format": {"type": "json_schema"}}},
    {"guided_choice": ["a", "b"]},
    {"structured_outputs": {"regex": "a+"}},
]


def sampled(parameters, constrained):
    """A rollout of two calls, each of which sampled two tokens; the second had these parameters."""
    told = with_sampled(talk("r", 2, 2), lambda _: {"logprobs": Logprobs.of([-0.5, -1.0])})
    last = structs.replace(told.calls[1], parameters=parameters)
    assert last.is_constrained is constrained
    return replace(told, calls=(told.calls[0], last))


@pytest.mark.parametrize("constrained", [False, True])
def test_logprobs_under_a_grammar_are_unknown(constrained):
    for parameters in CONSTRAINED if constrained else FREE:
        (batch,) = art_otel.batches([sampled(parameters, constrained)], **EVERYTHING)
        trained = batch.logprobs[batch.loss_mask]
        assert trained[:2].tolist() == [-0.5, -1.0]
        assert np.isnan(trained[2:]).all() if constrained else trained[2:].tolist() == [-0.5, -1.0]


def test_a_dataset_says_which_calls_were_constrained(tmp_path):
    art_otel.write_trajectories([sampled(CONSTRAINED[0], constrained=True)], tmp_path)
    (batch,) = art_otel.batches(tmp_path, **EVERYTHING)
    assert np.isnan(batch.logprobs[batch.loss_mask]).tolist() == [False, False, True, True]


def test_constrained_completions_can_be_context_alone():
    batches = art_otel.batches([sampled(CONSTRAINED[0], constrained=True)], constrained="mask", **EVERYTHING)
    (batch,) = batches
    assert batch.logprobs[batch.loss_mask].tolist() == [-0.5, -1.0]
    assert batches.report.completions_skipped == {"constrained sampling": 1}
    with pytest.raises(UsageError, match="constrained='maybe'"):
        art_otel.batches([], constrained="maybe")
