"""Rows of batches are as wide as said; what is too long for one is cut or left out, and counted to the token."""

import numpy as np
import pytest

import art_otel
from art_otel.data import call_reward
from art_otel.errors import UsageError
from tests.data.account import check_account
from tests.data.token_rollouts import EVERYTHING, all_pieces, judged, talk


def test_the_last_batch_is_smaller_and_rows_are_padded_with_a_token_of_choice():
    found = [talk("r-0", 1), talk("r-1", 3), talk("r-2", 2)]
    first, last = art_otel.batches(found, **EVERYTHING, batch_size=2, pad_token_id=9)
    assert first.input_ids.tolist() == [[0, 100, 9, 9], [0, 100, 100, 100]]
    assert first.segment_ids.tolist() == [[1, 1, 0, 0], [2, 2, 2, 2]]
    assert first.position_ids.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]
    assert last.loss_mask.tolist() == [[False, True, True]]
    assert [first[name].dtype.str for name in ("input_ids", "loss_mask", "logprobs", "segment_ids")] == [
        "<i4",
        "|b1",
        "<f4",
        "<i4",
    ]
    assert first["rewards"].dtype == np.float64
    assert np.isnan(first.rewards).all()
    assert first.advantages is None
    assert "advantages" not in first.arrays()
    with pytest.raises(KeyError, match="a batch has input_ids, "):
        first["tokens"]


def test_packed_rows_are_as_wide_as_said_and_hold_several():
    found = [talk(f"r-{number}", size) for number, size in enumerate([2, 3, 1, 4])]
    (batch,) = art_otel.batches(found, **EVERYTHING, batch_size=2, packed=True, max_tokens=9)
    assert batch.segment_ids.tolist() == [[1, 1, 1, 2, 2, 2, 2, 3, 3], [4, 4, 4, 4, 4, 0, 0, 0, 0]]
    assert batch.rollout_ids.tolist() == ["r-0", "r-1", "r-2", "r-3"]


LONG = talk("long", 2, 3)  # 0 100 100 1 101 101 101
SHORT = talk("short", 1)


@pytest.mark.parametrize(
    ("limit", "overflow", "ids", "counts"),
    [
        (
            6,
            "drop",
            [[0, 100]],
            {"sequences_skipped": {"longer than max_tokens": 1}, "skipped_trained_tokens": 5},
        ),
        (6, "truncate", [[0, 100, 100, 1, 101, 101], [0, 100]], {"truncated_tokens": 1, "truncated_trained_tokens": 1}),
        (
            4,
            "truncate",
            [[0, 100, 100, 1], [0, 100]],
            {"truncated_tokens": 3, "truncated_trained_tokens": 3, "truncated_sequences": 1},
        ),
        (3, "truncate", [[0, 100, 100], [0, 100]], {"completions_skipped": {"longer than max_tokens": 1}}),
        (1, "truncate", [], {"trajectories_skipped": {"longer than max_tokens": 2}, "skipped_trained_tokens": 6}),
        (7, "raise", [[0, 100, 100, 1, 101, 101, 101], [0, 100]], {"truncated_tokens": 0, "sequences": 2}),
    ],
)
def test_what_is_too_long_is_counted_to_the_token(limit, overflow, ids, counts):
    made = art_otel.batches([LONG, SHORT], **EVERYTHING, max_tokens=limit, overflow=overflow)
    given_out = list(made)
    assert [np.frombuffer(piece.ids, np.int32).tolist() for piece in all_pieces(given_out)] == ids
    check_account(made, given_out)
    assert {name: getattr(made.report, name) for name in counts} == counts
    assert (
        sum((made.report.trained_tokens, made.report.skipped_trained_tokens, made.report.truncated_trained_tokens)) == 6
    )


def test_too_long_can_be_an_error_that_names_the_rollout():
    with pytest.raises(UsageError, match="rollout long: a sequence has 7 tokens, but max_tokens is 6"):
        list(art_otel.batches([SHORT, LONG], **EVERYTHING, max_tokens=6, overflow="raise"))


def test_the_reward_of_a_cut_sequence_is_that_of_its_last_completion_left():
    rewards = (judged(0.25, call=0), judged(0.75, call=1))
    found = talk("r", 2, 3, rewards=rewards)
    (batch,) = art_otel.batches(found, credit=call_reward())
    assert batch.rewards.tolist() == [0.75]
    (batch,) = art_otel.batches(found, credit=call_reward(), max_tokens=3, overflow="truncate")
    assert batch.rewards.tolist() == [0.25]
