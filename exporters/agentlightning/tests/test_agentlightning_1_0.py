"""Agent Lightning 1.0's own models on our file: each completion with its prompt, logprobs and reward."""

import json
import subprocess
from pathlib import Path

import pytest

from art_otel.exporting import export
from art_otel_agentlightning import EXPORTER
from tests.exporting.samples import branching, group, without_logprobs
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

RELEASES = ("agentlightning==1.0.2", "agentlightning==1.0.1")
"""The newest and the one before."""
SCRIPT = Path(__file__).with_name("read_with_1_0.py")


@pytest.mark.parametrize("release", RELEASES)
def test_its_rollouts_have_what_was_sampled(release, tmp_path):
    rollouts = {one.rollout_id: one for one in (*group(), branching(), without_logprobs())}
    export(list(rollouts.values()), EXPORTER, tmp_path / "x.jsonl")
    python = trainer_python("agentlightning", release, "numpy<3", version="3.12")
    done = subprocess.run([python, SCRIPT, tmp_path / "x.jsonl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert [one["rollout_id"] for one in theirs] == list(rollouts)
    for one in theirs:
        ours = rollouts[one["rollout_id"]]
        turns = [turn for turn in ours.turns if turn.tokens_untrained is None]
        assert [triplet["response"]["token_ids"] for triplet in one["triplets"]] == [
            turn.token_ids.tolist() for turn in turns
        ]
        assert [triplet["response"]["log_probs"] for triplet in one["triplets"]] == [
            None if turn.logprobs is None else turn.logprobs.tolist() for turn in turns
        ]
        assert [triplet["prompt"]["token_ids"] for triplet in one["triplets"]] == [
            ours.calls[turn.call].prompt_token_ids.tolist() for turn in turns
        ]
        assert [triplet["reward"] for triplet in one["triplets"]] == [*[None] * (len(turns) - 1), ours.reward]
        assert (one["final_reward"], one["data_id"]) == (ours.reward, ours.group_id or ours.rollout_id)
