"""`batches(…, tokenizer=…)`: what no server gave ids for is trained too, and marked."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import art_otel
from art_otel.data.retokenize import retokenize
from art_otel.errors import UsageError
from tests.data import tokenizers
from tests.data.rollouts import agent_rollouts, assistant, chat, rollout, user

CHATML = tokenizers.bpe(tokenizers.CHATML)
EVERYTHING = {"advantage": None, "allow_incomplete": True, "status": ("ok", "error", "cancelled", "unfinished")}


@pytest.mark.long
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(agent_rollouts(), st.sampled_from([tokenizers.CHATML, tokenizers.THINKING]))
def test_every_completion_is_trained_or_counted(trajectories, template):
    tokenizer = tokenizers.bpe(template)
    batches = art_otel.batches(trajectories, tokenizer=tokenizer, **EVERYTHING)
    read = list(batches)
    report = batches.report
    assert report.completions == report.trained_completions + sum(report.completions_skipped.values())
    assert report.completions_skipped["no token ids"] == 0
    found = [retokenize(trajectory, tokenizer) for trajectory in trajectories]
    spans = [span for one in found for history in one.histories for span in history.spans]
    assert report.retokenized == sum(len(one.histories) for one in found)
    masked = 0
    for batch in read:
        ours = np.isin(batch.segment_ids - 1, np.flatnonzero(batch.retokenized))
        masked += int(batch.loss_mask[ours].sum())
    assert masked == sum(span.end - span.start for span in spans)


def test_ids_made_here_are_marked_and_have_no_logprobs(tmp_path):
    trajectory = rollout(chat(user("hello"), assistant("the sunny"), user("is it"), assistant("hello")), reward=1.0)
    art_otel.write_trajectories([trajectory], tmp_path)
    for source in (tmp_path, [trajectory]):
        (batch,) = art_otel.batches(source, tokenizer=CHATML)
        assert batch.retokenized.tolist() == [True]
        trained = batch.input_ids[batch.loss_mask].tolist()
        assert CHATML.decode(trained) == "the sunny<|im_end|>hello<|im_end|>"
        assert np.isnan(batch.logprobs[batch.loss_mask]).all()
        assert not batch.logprobs[~batch.loss_mask].any()


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", Path("tokenizer"), object()])
def test_the_name_of_a_tokenizer_is_refused(name):
    with pytest.raises(UsageError, match=r"give a tokenizer, not its name, such as transformers\.AutoTokenizer"):
        art_otel.batches([], tokenizer=name)
