"""Batches: every sampled token is trained once or counted, in whatever order, layout and storage."""

import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import fields
from inspect import signature
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.data import Batch, call_reward, outcome_reward, step_reward, weighted
from art_otel.data.selection import SelectionKeywords
from art_otel.errors import UsageError
from art_otel.store import write_trajectories
from art_otel.testing import trajectories
from art_otel.trajectories import EXPLANATIONS, TextUntrained, TokensUntrained, TrajectoryGroup, token_histories
from tests.data.account import PAGE, REASONS, REFUSALS, check_account
from tests.data.batch_options import READING, laws, options
from tests.data.rollouts import rollout
from tests.data.token_rollouts import EVERYTHING, all_pieces, bytes_of, judged, rollouts, stored, talk, trainable
from tests.docs.pages import ROOT
from tests.docs.test_tables import first_column, section
from tests.examples import examples
from tests.trajectories.calls import call, choice

WIDE = 10_000


def sampled_tokens(trajectory) -> int:
    """Tokens of completions to train, of prompts with ids, as the server gave them."""
    trained = [turn for turn in trainable(trajectory).turns if turn.tokens_untrained is None]
    prompts = [trajectory.calls[turn.call].prompt_token_ids for turn in trained]
    return sum(len(turn.token_ids or ()) for turn, ids in zip(trained, prompts, strict=True) if ids is not None)


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
        for history in token_histories(trainable(trajectory))
        if any(history.loss_mask)
    )
    assert Counter((piece.rollout_id, piece.ids, piece.mask) for piece in given_out) == expected


@settings(laws, max_examples=examples(50))
@given(rollouts())
def test_logprobs_are_the_histories_and_unknown_only_where_trained(found):
    expected = Counter(
        (trajectory.rollout_id, history.token_ids.data, history.logprobs and history.logprobs.data)
        for trajectory in found
        for history in token_histories(trainable(trajectory))
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


@settings(laws, max_examples=examples(50))
@given(rollouts(), options())
def test_verdicts_are_what_the_report_counts(found, chosen):
    made = art_otel.batches(found, **chosen)
    verdicts = list(made.decisions())
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
    (_, *names, _) = signature(art_otel.batches).parameters
    assert set(first_column(section(PAGE, "## Options"))) >= {*names, *SelectionKeywords.__annotations__}
    untrained = {*get_args(TokensUntrained), *get_args(TextUntrained)}
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


def test_a_lone_evaluation_is_trained_with_where_it_is_named():
    members = [talk(f"r-{at}", 1, group_id="g", rewards=(judged(at, "correct"),)) for at in (0.0, 1.0)]
    with pytest.warns(UserWarning, match=r'2 rollouts have rewards \(correct: 2\).*outcome_reward\("correct"\)'):
        assert list(art_otel.batches(members)) == []
    chosen = art_otel.batches(members, credit=outcome_reward("correct"))
    (batch,) = chosen
    assert sorted(batch.rewards.tolist()) == [0.0, 1.0]
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


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"split": "eval"}, "no trajectory has split 'eval'; they have split 'train', None"),
        (
            {"training_step": range(8, 0, -1)},
            "no trajectory has training_step 1, 2, 3, 4, 5, 6, 7, 8; they have training_step 9, 10, None",
        ),
    ],
)
def test_a_filter_that_matches_nothing_is_said_with_what_there_is(tmp_path, filters, why):
    found = [rollout([], split="train", training_step=step) for step in (10, 9)]
    write_trajectories([*found, rollout([])], tmp_path)
    with pytest.warns(UserWarning, match=f"^there are no batches, because {re.escape(why)}$"):
        assert list(art_otel.batches(tmp_path, **filters)) == []


@pytest.mark.parametrize(
    ("group_ids", "why"), [((None, None), "none has a group_id"), (("a", "b"), "each is alone in its group")]
)
def test_advantages_that_compare_nobody_are_said(group_ids, why):
    found = [talk(group or f"r{at}", 1, group_id=group, reward=at) for at, group in enumerate(group_ids)]
    with pytest.warns(UserWarning, match=f"all advantages of 2 trajectories are 0, because {why}"):
        assert len(list(art_otel.batches(found))) == 1
    third = talk("c", 1, group_id=group_ids[0] and "c", reward=0.0)
    with pytest.warns(UserWarning, match=f"all advantages of . trajectories are 0, because {why}"):
        assert len(list(art_otel.batches([*found, third], batch_size=2, drop_last=True))) == 1
    for others in ({"advantage": "reinforce_plus_plus"}, {"advantage": None}):
        assert len(list(art_otel.batches(found, **others))) == 1
    for alike in ([talk(name, 1, group_id="g", reward=1.0) for name in "ab"], found[:1]):
        assert not next(iter(art_otel.batches(alike))).advantages.any()


def test_sources_without_a_trajectory_are_said():
    with pytest.warns(UserWarning, match="there is no trajectory in the sources"):
        assert list(art_otel.batches([])) == []


def test_why_nothing_is_trained_is_said_with_counts():
    found = [talk("a", 1), talk("b", 1, status="error"), talk("c", 1, status="error")]
    with pytest.warns(UserWarning, match=r"all 3 trajectories are left out \(status: 2, no policy version: 1\)"):
        assert list(art_otel.batches(found, advantage=None, policy_version=7)) == []


def test_conversations_and_pairs_of_nothing_say_why_too():
    found = [
        talk(f"r-{at}", 1, group_id="g", reward=at, rewards=(judged(at), judged(at, "style"))) for at in (0.0, 1.0)
    ]
    for make in (art_otel.data.message_batches, art_otel.data.preference_batches):
        with pytest.warns(UserWarning, match="no trajectory has split 'eavl'; they have split None"):
            assert list(make(found, split="eavl")) == []


def test_a_name_that_no_reward_has_is_told_with_those_that_there_are(tmp_path):
    found = [
        talk(f"r-{at}", 1, group_id="g", reward=at, rewards=(judged(at), judged(at, "style"))) for at in (0.0, 1.0)
    ]
    write_trajectories([*found, talk("r-other", 1, status="error", rewards=(judged(1.0, "other"),))], tmp_path)
    for made in (
        art_otel.batches(tmp_path, credit=outcome_reward("stile")),
        art_otel.data.message_batches(tmp_path, reward="stile", min_reward=0.0),
    ):
        with pytest.warns(UserWarning, match=r"no reward: 2.*The recorded rewards are named reward, style$"):
            assert list(made) == []


def test_by_length_sequences_of_the_same_length_share_a_batch():
    found = [talk(f"r-{number}", size, reward=1.0) for number, size in enumerate([1, 9, 1, 9, 5, 1, 9, 5, 1, 5, 9])]
    plain = art_otel.batches(found, batch_size=4)
    sorted_ = [art_otel.batches(found, batch_size=4, by_length=True, seed=seed) for seed in (None, 1)]
    told = [sorted(name for batch in made for name in batch.rollout_ids) for made in (plain, *sorted_)]
    assert told[0] == told[1] == told[2] == sorted(one.rollout_id for one in found)
    assert plain.report.padding > 20
    for made in sorted_:
        assert made.report.padding < 8
        whole = [batch.rollout_ids.tolist() for batch in made]
        first = iter(made)
        next(first)
        again = art_otel.batches(found, batch_size=4, by_length=True, seed=made._recipe.order.seed)
        again.load_state_dict(made.state_dict())
        assert [batch.rollout_ids.tolist() for batch in again] == whole[1:]
    with pytest.raises(UsageError, match="by_length"):
        art_otel.batches(found, by_length=True, packed=True, max_tokens=20)
