"""What a pattern of differences is called. Other weights do not show in tokens of which a policy is sure."""

import numpy as np
import pytest

from art_otel.verification.diagnosis import diagnose
from art_otel.verification.scored_tokens import ScoredCompletion, ScoredTokens

ROLLOUTS = 40
TOKENS = 4
LIMIT = 2e-4
SURE, UNSURE = 0.9999, 0.4
EXACT = 5e-6


def named(probabilities, off) -> list[str]:
    """Diagnose rollouts of two turns.

    `probabilities` are those of the tokens in first and second turns, `off` how far their logprobs are apart.
    Shape of both: (ROLLOUTS, 2).
    """
    completions = [
        ScoredCompletion(f"r{row}", turn, row, 80 + 20 * turn, 80 + 20 * turn + TOKENS, None, is_constrained=False)
        for row in range(ROLLOUTS)
        for turn in range(2)
    ]
    recorded = np.log(np.repeat(np.broadcast_to(probabilities, (ROLLOUTS, 2)).ravel(), TOKENS))
    apart = np.repeat(np.broadcast_to(off, (ROLLOUTS, 2)).ravel(), TOKENS)
    scored = ScoredTokens(
        completions=completions,
        versions=["1"],
        recorded=recorded,
        completion=np.repeat(np.arange(len(completions), dtype=np.int32), TOKENS),
        position=np.concatenate([np.arange(one.start, one.end, dtype=np.int32) for one in completions]),
        version=np.zeros(len(recorded), np.int32),
        rollouts=ROLLOUTS,
    )
    model = recorded + apart * np.where(np.arange(len(recorded)) % 2, 1, -1)
    return [one.name for one in diagnose(scored, model, model, LIMIT)]


@pytest.mark.parametrize(
    ("probabilities", "off", "name"),
    [
        ([UNSURE, UNSURE], [EXACT, 0.5], "shifted ids"),
        ([SURE, UNSURE], [5e-5, 0.5], "other weights"),
        ([SURE, UNSURE], [EXACT, 0.01], "other weights"),
        ([UNSURE, UNSURE], [1e-4, 0.01], "other weights"),
        ([UNSURE, UNSURE], [0.004, 0.01], "numeric noise"),
    ],
)
def test_where_the_second_turn_is_off(probabilities, off, name):
    assert named(probabilities, off) == [name]


@pytest.mark.parametrize(("others", "name"), [(UNSURE, "some completions"), (SURE, "other weights")])
def test_where_every_fourth_rollout_is_off(others, name):
    is_off = np.arange(ROLLOUTS)[:, None] % 4 == 0
    assert named(np.where(is_off, UNSURE, others), np.where(is_off, 0.05, EXACT)) == [name]
