"""Every reason says what it means and what to do."""

from typing import get_args

import pytest
from msgspec import structs

import art_otel
from art_otel.data.choosing import SEVERAL
from art_otel.data.cures import cure_of, helps_against
from art_otel.data.decisions import NOTHING, REASONS
from art_otel.data.selection import ENDED_ON_FAILURE
from art_otel.trajectories import EXPLANATIONS, with_turns
from art_otel.trajectories.model import TextUntrained, TokensUntrained
from tests.data.token_rollouts import talk

OF_ROLLOUTS = (
    ENDED_ON_FAILURE, NOTHING, SEVERAL, "status", "split", "training step", "no policy version",
    "another policy version", "policy version without a number", "stale",
)  # fmt: skip
ALL = {
    *REASONS,
    *get_args(TokensUntrained),
    *get_args(TextUntrained),
    *OF_ROLLOUTS,
    *(f"incomplete: {reason}" for reason in EXPLANATIONS),
}


@pytest.mark.parametrize("reason", sorted(ALL))
def test_each_reason_has_a_cure_of_its_own(reason):
    cure, unknown = cure_of(reason), cure_of("incomplete: nobody knows this")
    assert cure.helps not in {cure_of("mine").helps, unknown.helps}
    assert cure.helps[0].isupper()
    assert cure.helps.endswith(".")
    assert "(" not in cure.means


def test_reports_say_what_to_do():
    cut = talk("r-1", 2, reward=1.0)
    cut = with_turns(cut, [structs.replace(turn, finish_reason="length") for turn in cut.turns])
    other = talk("r-2", 2, reward=1.0, split="val")
    batches = art_otel.batches([cut, other], length="mask")
    with pytest.warns(UserWarning, match="no batches"):
        assert list(batches) == []
    helps = batches.report.helps
    assert helps == {reason: cure_of(reason).helps for reason in ("cut at max_tokens", "split")}
    assert helps_against(["completions: cut at max_tokens", "one of an exporter"]) == {
        "cut at max_tokens": helps["cut at max_tokens"]
    }
