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
from art_otel.data import Batch, Batches, call_reward, discounted, outcome_reward, step_reward, weighted
from art_otel.errors import UsageError
from art_otel.testing import trajectories
from art_otel.trajectories import EXPLANATIONS, TrajectoryGroup, Untrained, token_histories
from tests.data.rollouts import rollout
from tests.data.token_rollouts import (
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
from tests.trajectories.calls import call, choice

CREDITS = ["outcome_reward", outcome_reward(), weighted({"a": 2.0}), step_reward(), call_reward(), discounted(0.5)]
WIDE = 10_000

laws = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CHOICES = {
    "allow_incomplete": st.sampled_from([True, False, ["missing root"]]),
    "split": st.sampled_from([None, None, "train", ["train", None]]),
    "status": st.sampled_from(["ok", ("ok", "error")]),
    "advantage": st.sampled_from(["grpo", "grpo_sample", "dr_grpo", "rloo", "centered", None]),
    "credit": st.sampled_from(CREDITS),
    "zero_variance": st.sampled_from(["keep", "drop"]),
}
FRESH = st.sampled_from(
    [{}, {}, {"policy_version": "step-2"}, {"policy_version": 2, "max_staleness": 0}, {"policy_version": "main"}]
)
CUTS = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 12), "overflow": st.sampled_from(["drop", "truncate"]), "packed": st.booleans()}
)
READING = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 3),
        "shuffle_buffer": st.integers(1, 3),
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
    refused = {one for one in report.trajectories_skipped if one in REFUSALS or one.startswith("incomplete: ")}
    if not refused:
        assert report.completions == sum(len(one.turns) for one in found)
    whole = art_otel.batches(found, **chosen | {"max_tokens": None, "packed": False})
    all_pieces(whole)
    made_tokens = report.trained_tokens + report.skipped_trained_tokens + report.truncated_trained_tokens
    assert whole.report.trained_tokens == made_tokens
    assert whole.report.sequences == report.sequences + report.sequences_skipped.total()
    assert whole.report.completions == report.completions


PAGE = text_of("docs/how-to/batches.md")
REASONS = set(first_column(section(PAGE, "## Reasons")))
REFUSALS = REASONS & {"status", "split", "stale", "ended on a failed call"} | {
    one for one in REASONS if "policy version" in one or one.startswith("incomplete: ")
}


def check_account(made: Batches, given_out) -> None:
    """The equations of a report, and that it tells of these batches."""
    report = made.report
    assert report.trajectories == report.trajectories_used + report.trajectories_skipped.total()
    assert report.completions == report.trained_completions + report.completions_skipped.total()
    assert report.batches == len(given_out)
    assert report.sequences == len(all_pieces(given_out))
    assert report.tokens == sum(int((batch.segment_ids > 0).sum()) for batch in given_out)
    assert report.tokens + report.padding == sum(batch.input_ids.size for batch in given_out)
    assert report.trained_tokens == sum(int(batch.loss_mask.sum()) for batch in given_out)
    assert report.without_logprobs == sum(int(np.isnan(batch.logprobs).sum()) for batch in given_out)
    advantages = [batch.advantages[batch.loss_mask] for batch in given_out if batch.advantages is not None]
    assert report.zero_advantage_tokens == sum(int((known == 0).sum()) for known in advantages)
    for skipped in (report.trajectories_skipped, report.sequences_skipped, report.completions_skipped):
        assert {one for one in skipped if not one.startswith("incomplete: ")} <= REASONS


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
            for order in ({}, {"seed": 1}, {"seed": 2}, {"seed": 1, "epoch": 1}, {"seed": 1, "shuffle_buffer": 1})
        ]
    assert orders[0] == [one.rollout_id for one in found]
    assert len(set(map(tuple, orders))) == len(orders)
    assert len(set(map(frozenset, orders))) == 1


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 3))
def test_from_every_state_exactly_the_rest_is_given(found, chosen, rows):
    with stored(found, rows) as folder:
        made = art_otel.batches(folder, **chosen)
        states, whole = [json.loads(json.dumps(made.state_dict()))], []
        for batch in made:
            whole.append(bytes_of(batch))
            states.append(json.loads(json.dumps(made.state_dict())))
        for at, state in enumerate(states):
            rest = art_otel.batches(folder, **chosen)
            rest.load_state_dict(state)
            assert rest.state_dict() == state
            given_out = list(rest)
            assert [bytes_of(batch) for batch in given_out] == whole[at:]
            check_account(rest, given_out)
            assert rest.state_dict() == states[-1]


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 4), st.integers(1, 3))
def test_ranks_give_as_many_batches_each_and_together_those_of_one_reader(found, chosen, world_size, rows):
    with stored(found, rows) as folder:
        whole = art_otel.batches(folder, **chosen)
        expected = [bytes_of(batch) for batch in whole]
        ranks = [art_otel.batches(folder, **chosen, rank=rank, world_size=world_size) for rank in range(world_size)]
        given_out = [list(rank) for rank in ranks]
    rounds = [one for of_ranks in zip(*given_out, strict=True) for one in of_ranks]
    assert [bytes_of(batch) for batch in rounds[: len(expected)]] == expected
    padding = rounds[len(expected) :]
    assert len(padding) < world_size
    for batch in padding:
        assert not batch.loss_mask.any()
        assert batch.input_ids.tobytes() == rounds[len(expected) - 1].input_ids.tobytes()
        assert batch.advantages is None or not batch.advantages.any()
        assert not np.isnan(batch.logprobs).any()
    assert all(rank.report == whole.report for rank in ranks)


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 4))
def test_drop_last_drops_the_round_that_is_not_whole_and_counts_it(found, chosen, world_size):
    whole = [bytes_of(batch) for batch in art_otel.batches(found, **chosen)]
    ranks = [
        art_otel.batches(found, **chosen, rank=rank, world_size=world_size, drop_last=True)
        for rank in range(world_size)
    ]
    rounds = [one for of_ranks in zip(*map(list, ranks), strict=True) for one in of_ranks]
    assert [bytes_of(batch) for batch in rounds] == whole[: len(rounds)]
    assert len(whole) - len(rounds) <= world_size
    assert all(len(batch.input_ids) == chosen["batch_size"] for batch in rounds)
    for rank in ranks:
        check_account(rank, rounds)


@settings(laws, max_examples=examples(40))
@given(rollouts(storable=True), options(), st.integers(1, 4), st.integers(1, 3))
def test_workers_divide_the_sequences_and_the_account(found, chosen, count, rows):
    with stored(found, rows) as folder:
        whole = art_otel.batches(folder, **chosen)
        workers = [whole.of_worker(index, count) for index in range(count)]
        parts = [all_pieces(worker) for worker in workers]
        assert Counter(piece for part in parts for piece in part) == Counter(all_pieces(whole))
    reports = [worker.report for worker in workers]
    assert sum((report.trajectories_skipped for report in reports), Counter()) == whole.report.trajectories_skipped
    assert max(report.trajectories for report in reports) - min(report.trajectories for report in reports) <= 1
    for name in ("trajectories", "trajectories_used", "completions", "trained_tokens", "drifts", "respellings"):
        assert sum(getattr(report, name) for report in reports) == getattr(whole.report, name)


@settings(laws, max_examples=examples(50))
@given(rollouts(), options())
def test_verdicts_are_what_the_report_counts(found, chosen):
    made = art_otel.batches(found, **chosen)
    verdicts = list(made.verdicts())
    told = made.report
    assert [verdict.rollout_id for verdict in verdicts] == [one.rollout_id for one in found]
    assert Counter(verdict.skipped for verdict in verdicts if verdict.skipped) == told.trajectories_skipped
    completions = [reason for verdict in verdicts for reason in verdict.completions]
    assert Counter(reason for reason in completions if reason) == told.completions_skipped
    assert (len(completions), completions.count(None)) == (told.completions, told.trained_completions)
    given_out = list(made)
    trained = {name: getattr(made.report, name) for name in SUMS}
    assert trained == {name: getattr(told, name) for name in SUMS}
    assert {one for batch in given_out for one in batch.rollout_ids} == {
        verdict.rollout_id for verdict in verdicts if verdict.skipped is None
    }


SUMS = [
    *("trajectories", "trajectories_used", "trajectories_skipped", "completions", "trained_completions"),
    *("completions_skipped", "sequences", "sequences_skipped", "trained_tokens", "token_rewards", "drifts"),
]


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
    assert all(len(turn_rewards) == len(one.turns) for one, turn_rewards in selected)
    assert made.report.trajectories_used == len(selected)
    assert made.report.trajectories == len(found) == len(selected) + made.report.trajectories_skipped.total()


@pytest.mark.parametrize("packed", [False, True])
def test_windows_before_the_state_are_not_read_again(packed):
    found = [talk(f"r-{number:02}", 1) for number in range(20)]
    chosen = {**EVERYTHING, "batch_size": 3, "seed": 5, "shuffle_buffer": 2, "packed": packed, "max_tokens": 5}
    with stored(found, rows=2) as folder:
        made = art_otel.batches(folder, **chosen)
        states, whole = [made.state_dict()], []
        for batch in made:
            whole.append(bytes_of(batch))
            states.append(made.state_dict())
        for at, state in enumerate(states):
            rest = art_otel.batches(folder, **chosen)
            rest.load_state_dict(state)
            given_out = list(rest)
            assert list(map(bytes_of, given_out)) == whole[at:]
            check_account(rest, given_out)
            report = rest.report
            # Each rollout is a sequence with a trained token, four of them a window.
            assert report.trajectories == 20 - 4 * state["window"]
            assert report.sequences_skipped.total() == report.skipped_trained_tokens == state["sequence"]
            assert report.trained_tokens + report.skipped_trained_tokens == report.trajectories
            rest.load_state_dict(state)
            assert Counter(one.rollout_id for one in rest.sequences()) == Counter(
                piece.rollout_id for batch in given_out for piece in pieces(batch)
            )
            assert len(list(rest)) == len(whole)  # a state is of the next iteration only


def test_steps_of_one_index_are_counted_and_their_rewards_are_not_used():
    two = [structs.replace(judged(value, step=0), target=str(value) * 4) for value in (1.0, -1.0)]
    told = talk("r", 1, 1, 1, steps=(0, 0, 1), rewards=(*two, judged(0.5, step=1)))
    made = art_otel.batches([told], credit=step_reward(), advantage=None)
    assert [batch.rewards.tolist() for batch in made] == [[0.5]]
    assert made.report.shared_steps == 1
    made = art_otel.batches([told], credit=step_reward())
    assert len(list(made)) == 1
    assert made.report.completions_skipped == {"no reward": 2}
    assert made.report.shared_steps == 1
    made = art_otel.batches([told], credit=call_reward())
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
    with pytest.raises(UsageError, match="rollout long: a sequence of 7 tokens, max_tokens is 6"):
        list(art_otel.batches([SHORT, LONG], **EVERYTHING, max_tokens=6, overflow="raise"))


def test_the_reward_of_a_cut_sequence_is_that_of_its_last_completion_left():
    rewards = (judged(0.25, call=0), judged(0.75, call=1))
    found = talk("r", 2, 3, rewards=rewards)
    (batch,) = art_otel.batches(found, credit=call_reward())
    assert batch.rewards.tolist() == [0.75]
    (batch,) = art_otel.batches(found, credit=call_reward(), max_tokens=3, overflow="truncate")
    assert batch.rewards.tolist() == [0.25]


def test_groups_of_trajectories_in_memory_give_their_id():
    group = TrajectoryGroup(group_id="g", trajectories=[talk("a", 1, reward=0.0), talk("b", 1, reward=1.0)])
    (batch,) = art_otel.batches([group], advantage="centered")
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
    assert made.report.trajectories_skipped == {"nothing sampled": 1, "no tokens sampled": 1}


def test_the_page_names_every_array_option_and_reason():
    assert first_column(section(PAGE, "## Arrays")) == [field.name for field in fields(Batch)]
    (_, *names) = signature(art_otel.batches).parameters
    assert set(first_column(section(PAGE, "## Options"))) >= set(names)
    untrained = set(get_args(Untrained))
    assert untrained <= REASONS
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("art_otel/**/*.py"))
    incomplete = {f"incomplete: {reason}" for reason in EXPLANATIONS}
    assert incomplete <= REASONS
    assert not [reason for reason in REASONS - untrained - incomplete if f'"{reason}"' not in code]


def test_several_rewards_of_which_none_is_final_are_told():
    """Nothing would be trained, and only a count of `no reward` would say so."""
    members = [
        talk(f"r-{at}", 1, group_id="g", rewards=(judged(at, "correctness"), judged(0.5, "format")))
        for at in (0.0, 1.0)
    ]
    made = art_otel.batches(members)
    with pytest.warns(UserWarning, match=r"2 rollouts have several rewards \(correctness, format: 2\).*weighted\("):
        assert list(made) == []
    assert made.report.no_final_reward == {"correctness, format": 2}
    assert made.report.completions_skipped == {"no reward": 2}
    chosen = art_otel.batches(members, credit=weighted({"correctness": 1.0, "format": 1.0}))
    assert len(list(chosen)) == 1
    assert chosen.report.no_final_reward == {}


def test_without_token_ids_a_warning_names_the_cure():
    silent = rollout([call(0, "q", None, choice("a", None))], "a")
    with pytest.warns(UserWarning, match=r"no completion has token ids.*ART_OTEL_REQUEST_TOKENS=1.*tokenizer="):
        assert list(art_otel.batches([silent], **EVERYTHING)) == []


def test_incomplete_trajectories_are_left_out_by_reason_unless_it_is_allowed():
    found = [
        talk("whole", 1),
        talk("a", 1, incomplete_reasons={"bad reward": 1}),
        talk("b", 1, incomplete_reasons={"bad reward": 1, "spans missing": 2}),
    ]
    made = art_otel.batches(found, advantage=None)
    assert [one for batch in made for one in batch.rollout_ids] == ["whole"]
    assert made.report.trajectories_skipped == {"incomplete: bad reward": 2}
    made = art_otel.batches(found, advantage=None, allow_incomplete=["bad reward"])
    assert [one for batch in made for one in batch.rollout_ids] == ["whole", "a"]
    assert made.report.trajectories_skipped == {"incomplete: spans missing": 1}
    made = art_otel.batches(found, advantage=None, allow_incomplete=True)
    assert [one for batch in made for one in batch.rollout_ids] == ["whole", "a", "b"]


def test_groups_are_lists_of_trajectories_too():
    group = TrajectoryGroup(group_id="g", trajectories=[talk("a", 1, reward=0.0), talk("b", 1, reward=1.0)])
    assert (len(group), [one.rollout_id for one in group]) == (2, ["a", "b"])
    (batch,) = art_otel.batches([group, [talk("c", 1, reward=1.0)]], advantage="centered")
    assert batch.rollout_ids.tolist() == ["a", "b", "c"]


def test_what_a_notebook_shows_is_short():
    found = [talk(f"r-{number}", 1) for number in range(3)]
    made = art_otel.batches(found, advantage=None)
    shown = [repr(made), repr(next(made.sequences())), repr(next(iter(made)))]
    assert [text.split()[0] for text in shown] == ["<Batches", "<TokenSequence", "<Batch"]
    assert max(map(len, shown)) < 200
