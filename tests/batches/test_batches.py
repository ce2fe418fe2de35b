"""Batches: every sampled token is trained once or counted, in whatever order, layout and storage."""

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import fields
from inspect import signature
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.batches import Batch, Batches, discounted, final, per_call, step_wise, weighted
from art_otel.batches import options as options_room
from art_otel.errors import UsageError
from art_otel.testing import trajectories
from art_otel.trajectories import TrajectoryGroup, Untrained, token_histories
from tests.batches.token_rollouts import (
    EVERYTHING,
    all_pieces,
    bytes_of,
    judged,
    pieces,
    rollouts,
    stored,
    talk,
)
from tests.docs.pages import ROOT, text_of
from tests.docs.test_tables import first_column, section
from tests.examples import examples

CREDITS = [None, final(), weighted({"a": 2.0}), step_wise(), per_call(), discounted(0.5)]
WIDE = 10_000

laws = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CHOICES = {
    "complete_only": st.booleans(),
    "splits": st.sampled_from([None, None, "train", ["train", None]]),
    "statuses": st.sampled_from(["ok", ("ok", "error")]),
    "advantage": st.sampled_from(["grpo", "grpo_sample", "dr_grpo", "rloo", "centred", None]),
    "credit": st.sampled_from(CREDITS),
    "zero_variance": st.sampled_from(["keep", "leave_out"]),
}
FRESH = st.sampled_from(
    [{}, {}, {"policy_version": "step-2"}, {"policy_version": 2, "max_staleness": 0}, {"policy_version": "main"}]
)
CUTS = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 12), "too_long": st.sampled_from(["leave_out", "cut"]), "packed": st.booleans()}
)
READING = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 3),
        "window": st.integers(1, 3),
        "seed": st.sampled_from([None, 0, 7]),
        "epoch": st.integers(0, 1),
    }
)


@st.composite
def options(draw) -> dict:
    """Any options but for those that raise."""
    limits = draw(st.just({}) | CUTS)
    return draw(st.fixed_dictionaries(CHOICES)) | draw(FRESH) | limits | draw(READING)


def sampled_tokens(trajectory) -> int:
    """Tokens of completions to train, of prompts with ids, as the server gave them."""
    trainable = [turn for turn in trajectory.turns if turn.untrained is None]
    prompts = [trajectory.calls[turn.call].prompt_token_ids for turn in trainable]
    return sum(len(turn.token_ids or ()) for turn, ids in zip(trainable, prompts, strict=True) if ids is not None)


@settings(laws, max_examples=examples(50))
@given(rollouts(), READING)
def test_every_sampled_token_is_trained_once_packed_or_not(found, reading):
    padded = art_otel.batches(found, **EVERYTHING, **reading)
    packed = art_otel.batches(found, **EVERYTHING, **reading, packed=True, max_tokens=WIDE)
    given_out = all_pieces(padded)
    assert padded.report.trained_tokens == sum(map(sampled_tokens, found))
    assert Counter(all_pieces(packed)) == Counter(given_out)
    expected = Counter(
        (trajectory.rollout_id, history.token_ids.data, history.loss_mask)
        for trajectory in found
        for history in token_histories(trajectory)
        if any(history.loss_mask)
    )
    assert Counter((piece.rollout_id, piece.ids, piece.mask) for piece in given_out) == expected


@settings(laws, max_examples=examples(50))
@given(rollouts())
def test_logprobs_are_the_histories_and_unknown_only_where_trained(found):
    expected = Counter(
        (trajectory.rollout_id, history.token_ids.data, history.logprobs and history.logprobs.data)
        for trajectory in found
        for history in token_histories(trajectory)
        if any(history.loss_mask)
    )
    given_out = Counter()
    for piece in all_pieces(art_otel.batches(found, **EVERYTHING)):
        known = not np.isnan(np.frombuffer(piece.logprobs, np.float32)).any()
        given_out[piece.rollout_id, piece.ids, piece.logprobs if known else None] += 1
    assert given_out == expected


@settings(laws, max_examples=examples(100))
@given(rollouts(), options())
def test_everything_that_is_left_out_is_counted(found, chosen):
    made = art_otel.batches(found, **chosen)
    given_out = list(made)
    check_account(made, given_out)
    report = made.report
    assert report.trajectories == len(found)
    refused = {one for one in report.trajectories_left_out if one in REFUSALS}
    if not refused:
        assert report.completions == sum(len(one.turns) for one in found)
    whole = art_otel.batches(found, **chosen | {"max_tokens": None, "packed": False})
    all_pieces(whole)
    made_tokens = report.trained_tokens + report.left_out_trained_tokens + report.cut_trained_tokens
    assert whole.report.trained_tokens == made_tokens
    assert whole.report.sequences == report.sequences + report.sequences_left_out.total()
    assert whole.report.completions == report.completions


PAGE = text_of("docs/how-to/batches.md")
REASONS = set(first_column(section(PAGE, "## Reasons")))
REFUSALS = REASONS & {"incomplete", "status", "split", "stale", "ended on a failed call"} | {
    one for one in REASONS if "policy version" in one
}


def check_account(made: Batches, given_out) -> None:
    """The equations of a report, and that it tells of these batches."""
    report = made.report
    assert report.trajectories == report.trajectories_used + report.trajectories_left_out.total()
    assert report.completions == report.trained_completions + report.completions_left_out.total()
    assert report.batches == len(given_out)
    assert report.sequences == len(all_pieces(given_out))
    assert report.tokens == sum(int((batch.segment_ids > 0).sum()) for batch in given_out)
    assert report.tokens + report.padding == sum(batch.input_ids.size for batch in given_out)
    assert report.trained_tokens == sum(int(batch.loss_mask.sum()) for batch in given_out)
    assert report.without_logprobs == sum(int(np.isnan(batch.logprobs).sum()) for batch in given_out)
    advantages = [batch.advantages[batch.loss_mask] for batch in given_out if batch.advantages is not None]
    assert report.zero_advantage_tokens == sum(int((known == 0).sum()) for known in advantages)
    for left_out in (report.trajectories_left_out, report.sequences_left_out, report.completions_left_out):
        assert set(left_out) <= REASONS


@settings(laws, max_examples=examples(50))
@given(rollouts(), options())
def test_the_same_options_give_the_same_batches_and_other_seeds_the_same_sequences(found, chosen):
    first = [bytes_of(batch) for batch in art_otel.batches(found, **chosen)]
    again = art_otel.batches(found, **chosen)
    assert [bytes_of(batch) for batch in again] == first
    assert [bytes_of(batch) for batch in again] == first
    sets = [Counter(all_pieces(art_otel.batches(found, **chosen | {"seed": seed}))) for seed in (None, 1, 2)]
    assert sets[0] == sets[1] == sets[2]


def test_seeds_and_epochs_give_orders_of_their_own():
    found = [talk(f"r-{number:02}", 1) for number in range(30)]
    with stored(found, rows=3) as folder:
        orders = [
            [piece.rollout_id for piece in all_pieces(art_otel.batches(folder, **EVERYTHING, **order))]
            for order in ({}, {"seed": 1}, {"seed": 2}, {"seed": 1, "epoch": 1}, {"seed": 1, "window": 1})
        ]
    assert orders[0] == [one.rollout_id for one in found]
    assert len(set(map(tuple, orders))) == len(orders)
    assert len(set(map(frozenset, orders))) == 1


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 3))
def test_from_every_state_exactly_the_rest_is_given(found, chosen, rows):
    with stored(found, rows) as folder:
        made = art_otel.batches(folder, **chosen)
        states, whole = [json.loads(json.dumps(made.state))], []
        for batch in made:
            whole.append(bytes_of(batch))
            states.append(json.loads(json.dumps(made.state)))
        for at, state in enumerate(states):
            rest = art_otel.batches(folder, **chosen, resume=state)
            assert rest.state == state
            given_out = list(rest)
            assert [bytes_of(batch) for batch in given_out] == whole[at:]
            check_account(rest, given_out)
            assert rest.state == states[-1]


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 4), st.integers(1, 3))
def test_shards_divide_the_sequences_and_the_account(found, chosen, count, rows):
    with stored(found, rows) as folder:
        shards = [art_otel.batches(folder, **chosen, shard=(index, count)) for index in range(count)]
        parts = [all_pieces(shard) for shard in shards]
        whole = art_otel.batches(folder, **chosen)
        assert Counter(piece for part in parts for piece in part) == Counter(all_pieces(whole))
    reports = [shard.report for shard in shards]
    assert sum((report.trajectories_left_out for report in reports), Counter()) == whole.report.trajectories_left_out
    assert max(report.trajectories for report in reports) - min(report.trajectories for report in reports) <= 1
    for name in ("trajectories", "trajectories_used", "completions", "trained_tokens", "drifts", "respellings"):
        assert sum(getattr(report, name) for report in reports) == getattr(whole.report, name)


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 3))
def test_files_and_memory_give_the_same(found, chosen, rows):
    unshuffled = chosen | {"seed": None}
    check_equal(found, stored(found, rows), unshuffled)
    check_equal(found, stored(found, 100), chosen)  # one row group, shuffled


def check_equal(found, files, chosen) -> None:
    in_memory = art_otel.batches(found, **chosen)
    with files as folder:
        in_files = art_otel.batches(folder, **chosen)
        assert list(map(bytes_of, in_files)) == list(map(bytes_of, in_memory))
    assert in_files.report == in_memory.report


@settings(laws, max_examples=examples(50))
@given(st.lists(trajectories(), max_size=3), options())
def test_trajectories_of_any_kind_make_batches(found, chosen):
    made = art_otel.batches(found, **chosen)
    check_account(made, list(made))


@settings(laws, max_examples=examples(50))
@given(rollouts(), options())
def test_sequences_are_those_of_the_batches_and_trajectories_those_that_are_selected(found, chosen):
    made = art_otel.batches(found, **chosen)
    given_out = Counter((piece.rollout_id, piece.ids, piece.mask) for piece in all_pieces(made))
    whole = made.report
    alone = [(one.rollout_id, one.input_ids.tobytes(), one.loss_mask.tobytes()) for one in made.sequences()]
    assert Counter(alone) == given_out
    assert (made.report.trained_tokens, made.report.completions) == (whole.trained_tokens, whole.completions)
    selected = list(made.trajectories())
    assert all(len(worth) == len(one.turns) for one, worth in selected)
    assert made.report.trajectories_used == len(selected)
    assert made.report.trajectories == len(found) == len(selected) + made.report.trajectories_left_out.total()


@pytest.mark.parametrize("packed", [False, True])
def test_windows_before_the_state_are_not_read_again(packed):
    found = [talk(f"r-{number:02}", 1) for number in range(20)]
    chosen = {**EVERYTHING, "batch_size": 3, "seed": 5, "window": 2, "packed": packed, "max_tokens": 5}
    with stored(found, rows=2) as folder:
        made = art_otel.batches(folder, **chosen)
        states, whole = [made.state], []
        for batch in made:
            whole.append(bytes_of(batch))
            states.append(made.state)
        for at, state in enumerate(states):
            rest = art_otel.batches(folder, **chosen, resume=state)
            given_out = list(rest)
            assert list(map(bytes_of, given_out)) == whole[at:]
            check_account(rest, given_out)
            report = rest.report
            # Each rollout is a sequence with a trained token, four of them a window.
            assert report.trajectories == 20 - 4 * state["window"]
            assert report.sequences_left_out.total() == report.left_out_trained_tokens == state["sequence"]
            assert report.trained_tokens + report.left_out_trained_tokens == report.trajectories
            assert Counter(one.rollout_id for one in rest.sequences()) == Counter(
                piece.rollout_id for batch in given_out for piece in pieces(batch)
            )


def test_steps_of_one_index_are_counted_and_their_rewards_are_not_used():
    two = [structs.replace(judged(value, step=0), target=str(value) * 4) for value in (1.0, -1.0)]
    told = talk("r", 1, 1, 1, steps=(0, 0, 1), rewards=(*two, judged(0.5, step=1)))
    made = art_otel.batches([told], credit=step_wise(), advantage=None)
    assert [batch.rewards.tolist() for batch in made] == [[0.5]]
    assert made.report.shared_steps == 1
    made = art_otel.batches([told], credit=step_wise())
    assert len(list(made)) == 1
    assert made.report.completions_left_out == {"no reward": 2}
    assert made.report.shared_steps == 1
    made = art_otel.batches([told], credit=per_call())
    assert (list(made), made.report.shared_steps) == ([], 0)


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
    ("limit", "too_long", "ids", "counts"),
    [
        (
            6,
            "leave_out",
            [[0, 100]],
            {"sequences_left_out": {"longer than max_tokens": 1}, "left_out_trained_tokens": 5},
        ),
        (6, "cut", [[0, 100, 100, 1, 101, 101], [0, 100]], {"cut_tokens": 1, "cut_trained_tokens": 1}),
        (4, "cut", [[0, 100, 100, 1], [0, 100]], {"cut_tokens": 3, "cut_trained_tokens": 3, "cut_sequences": 1}),
        (3, "cut", [[0, 100, 100], [0, 100]], {"completions_left_out": {"longer than max_tokens": 1}}),
        (1, "cut", [], {"trajectories_left_out": {"longer than max_tokens": 2}, "left_out_trained_tokens": 6}),
        (7, "raise", [[0, 100, 100, 1, 101, 101, 101], [0, 100]], {"cut_tokens": 0, "sequences": 2}),
    ],
)
def test_what_is_too_long_is_counted_to_the_token(limit, too_long, ids, counts):
    made = art_otel.batches([LONG, SHORT], **EVERYTHING, max_tokens=limit, too_long=too_long)
    given_out = list(made)
    assert [np.frombuffer(piece.ids, np.int32).tolist() for piece in all_pieces(given_out)] == ids
    check_account(made, given_out)
    assert {name: getattr(made.report, name) for name in counts} == counts
    assert sum((made.report.trained_tokens, made.report.left_out_trained_tokens, made.report.cut_trained_tokens)) == 6


def test_too_long_can_be_an_error_that_names_the_rollout():
    with pytest.raises(UsageError, match="rollout long: a sequence of 7 tokens, max_tokens is 6"):
        list(art_otel.batches([SHORT, LONG], **EVERYTHING, max_tokens=6, too_long="raise"))


def test_the_reward_of_a_cut_sequence_is_that_of_its_last_completion_left():
    rewards = (judged(0.25, call=0), judged(0.75, call=1))
    found = talk("r", 2, 3, rewards=rewards)
    (batch,) = art_otel.batches(found, credit=per_call())
    assert batch.rewards.tolist() == [0.75]
    (batch,) = art_otel.batches(found, credit=per_call(), max_tokens=3, too_long="cut")
    assert batch.rewards.tolist() == [0.25]


def test_groups_of_trajectories_in_memory_give_their_id():
    group = TrajectoryGroup(group_id="g", trajectories=[talk("a", 1, reward=0.0), talk("b", 1, reward=1.0)])
    (batch,) = art_otel.batches([group], advantage="centred")
    assert batch.group_ids.tolist() == ["g", "g"]
    assert batch.advantages.tolist() == [[0, -0.5], [0, 0.5]]


@pytest.mark.parametrize("where", ["memory", "files"])
def test_nothing_and_trajectories_without_turns_give_no_batches(where):
    empty = talk("r-0")
    for found in ([], [empty], [empty, talk("r-1", 0)]):
        with stored(found) if where == "files" else nullcontext(found) as sources:
            made = art_otel.batches(sources, advantage=None)
            assert list(made) == []
            check_account(made, [])
    assert made.report.trajectories_left_out == {"nothing sampled": 1, "no tokens sampled": 1}


def test_the_page_names_every_array_option_and_reason():
    assert first_column(section(PAGE, "## Arrays")) == [field.name for field in fields(Batch)]
    (_, *names) = signature(options_room.batches).parameters
    assert set(first_column(section(PAGE, "## Options"))) >= set(names)
    untrained = set(get_args(Untrained))
    assert untrained <= REASONS
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("art_otel/batches/*.py"))
    assert not [reason for reason in REASONS - untrained if f'"{reason}"' not in code]
