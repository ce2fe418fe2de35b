"""Token rewards: on the tokens they were given to, and nowhere else."""

import math

import numpy as np
import pytest

import art_otel
from tests.data.rollouts import rollout
from tests.data.token_rollouts import judged, stored, talk
from tests.data.tokenizers import CHATML, bpe
from tests.trajectories.calls import call, choice


def of_tokens(value, start, end, name="reward", *, on=0, **fields):
    return judged(value, name, call=on, token_start=start, token_end=end, **fields)


def rewarded(*rewards, weights="reward", sizes=(2, 3), **options):
    made = art_otel.batches(talk("r", *sizes, rewards=rewards), advantage=None, token_rewards=weights, **options)
    return [row.tolist() for batch in made for row in batch.token_rewards], made.report


# Tokens: 0, 100 100, 1, 101 101 101.
TABLE = [
    ([], [0, 0, 0, 0, 0, 0, 0]),
    ([of_tokens(0.5, 0, 1)], [0, 0.5, 0, 0, 0, 0, 0]),
    ([of_tokens(0.5, 1, 3, on=1), of_tokens(2.0, 0, 2, on=1)], [0, 0, 0, 0, 2, 2.5, 0.5]),
    # The last one for a span counts.
    ([of_tokens(0.5, 0, 1), of_tokens(0.25, 0, 1)], [0, 0.25, 0, 0, 0, 0, 0]),
    # What is beyond the completion, of another name or of no number is nobody's.
    ([of_tokens(0.5, 1, 99)], [0, 0, 0.5, 0, 0, 0, 0]),
    ([of_tokens(0.5, 7, 9), of_tokens(0.5, -1, 1), of_tokens(0.5, 1, 1)], [0] * 7),
    ([of_tokens(0.5, 0, 1, "other"), of_tokens(None, 0, 1), judged(3.0), judged(3.0, call=0)], [0] * 7),
    ([of_tokens(0.5, 0, 1, on=9), of_tokens(0.5, 0, 1, choice=1)], [0] * 7),
]


@pytest.mark.parametrize(("rewards", "expected"), TABLE)
def test_the_table(rewards, expected):
    assert rewarded(*rewards)[0] == [expected]


def test_names_have_weights():
    given = (of_tokens(1.0, 0, 1, "a"), of_tokens(1.0, 0, 2, "b"), of_tokens(1.0, 0, 2, "c"))
    assert rewarded(*given, weights={"a": 2.0, "b": -0.5}, sizes=(2,))[0] == [[0, 1.5, -0.5]]


def test_a_name_that_nobody_gave_is_counted_as_0():
    given = (of_tokens(1.0, 0, 1, "style"), of_tokens(0.5, 1, 2, "style"), of_tokens(None, 0, 1, "label"))
    rows, report = rewarded(*given, judged(1.0, "whole"), weights="stlye", sizes=(2,))
    assert rows == [[0, 0, 0]]
    assert report.token_rewards == {"stlye": 0}
    assert list(report.token_rewards) == ["stlye"]
    weights = {"style": 1.0, "label": 1.0, "whole": 1.0}
    assert dict(rewarded(*given, weights=weights)[1].token_rewards) == {"style": 2, "label": 0, "whole": 0}


def test_choices_have_their_own():
    given = (of_tokens(0.5, 0, 1, choice=1), of_tokens(0.25, 0, 1))
    made = art_otel.batches(
        rollout([call(0, "q", [0], choice("a", [1]), choice("b", [2]))], rewards=given),
        advantage=None,
        token_rewards="reward",
    )
    assert [batch.token_rewards.tolist() for batch in made] == [[[0, 0.25], [0, 0.5]]]


def test_they_are_cut_packed_and_stored_like_the_tokens():
    given = (of_tokens(0.5, 0, 2),)
    assert rewarded(*given, max_tokens=2, overflow="truncate")[0] == [[0, 0.5]]
    assert rewarded(*given, sizes=(2,), packed=True, max_tokens=4)[0] == [[0, 0.5, 0.5, 0]]
    with stored([talk("r", 2, rewards=given)]) as folder:
        (batch,) = art_otel.batches(folder, advantage=None, token_rewards="reward")
    assert batch["token_rewards"].tolist() == [[0, 0.5, 0.5]]
    assert batch["token_rewards"].dtype == np.float32


def test_they_are_in_no_advantage_and_not_there_unless_asked_for():
    members = [talk(f"r-{at}", 1, group_id="g", reward=at, rewards=(of_tokens(7.0, 0, 1),)) for at in (0.0, 1.0)]
    (batch,) = art_otel.batches(members, advantage="centered", token_rewards="reward")
    assert batch.advantages.tolist() == [[0, -0.5], [0, 0.5]]
    assert batch.token_rewards.tolist() == [[0, 7], [0, 7]]
    (batch,) = art_otel.batches(members)
    assert batch.token_rewards is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_what_is_no_usable_number_leaves_its_completion_out(bad):
    given = (of_tokens(bad, 0, 1), of_tokens(0.5, 0, 1, on=1))
    rows, report = rewarded(*given)
    assert rows == [[0, 0, 0, 0, 0.5, 0, 0]]
    assert report.completions_skipped == {"unusable reward": 1}
    assert report.unusable_rewards == ["r"]
    assert report.trained_tokens == 3
    both = (of_tokens(bad, 0, 1), of_tokens(-bad, 0, 2))
    assert rewarded(*both, sizes=(2,))[0] == []


@pytest.mark.parametrize("ids", [[5], [5, 6, 7], list(range(10)), None])
def test_they_are_not_placed_on_tokens_that_no_server_gave(ids):
    """The completion's ids are known, its prompt's are not, so both are tokenized here: into others."""
    asked, rewards = call(0, "q", None, choice("hello", ids)), (of_tokens(0.5, 0, 1), of_tokens(0.5, 0, 1, on=9))
    made = art_otel.batches(
        rollout([asked], rewards=rewards), advantage=None, token_rewards="reward", tokenizer=bpe(CHATML)
    )
    (batch,) = made
    assert batch.retokenized.all()
    assert not batch.token_rewards.any()
    assert made.report.unplaced_token_rewards == 1
