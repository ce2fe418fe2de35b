"""The same options give the same batches, from files or memory, and ranks, workers and resumed readers share them."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import art_otel
from art_otel.data import loader
from tests.data.account import check_account
from tests.data.batch_options import laws, options
from tests.data.token_rollouts import EVERYTHING, all_pieces, bytes_of, pieces, rollouts, stored, talk
from tests.examples import examples


@settings(laws, max_examples=examples(50))
@given(rollouts(), options())
def test_the_same_options_give_the_same_batches_and_other_seeds_the_same_sequences(found, chosen):
    first = [bytes_of(batch) for batch in art_otel.batches(found, **chosen)]
    again = art_otel.batches(found, **chosen)
    assert [bytes_of(batch) for batch in again] == first
    assert [bytes_of(batch) for batch in again] == first
    sets = [Counter(all_pieces(art_otel.batches(found, **chosen | {"seed": seed}))) for seed in (None, 1, 2)]
    assert sets[0] == sets[1] == sets[2]


def test_a_rank_builds_the_sequences_of_its_own_batches_alone(monkeypatch):
    found = [talk(f"r-{number:02}", 1, 2, reward=float(number % 3), group_id="g") for number in range(40)]
    built: list[str] = []
    build = loader.build_sequences

    def recorded(trajectory, *decided):
        built.append(trajectory.rollout_id)
        return build(trajectory, *decided)

    with stored(found, rows=10) as folder:
        whole = art_otel.batches(folder, batch_size=4, seed=3)
        every = [bytes_of(batch) for batch in whole]
        monkeypatch.setattr(loader, "build_sequences", recorded)
        for rank in range(4):
            built.clear()
            mine = art_otel.batches(folder, batch_size=4, seed=3, rank=rank, world_size=4)
            given_out = list(mine)
            assert [bytes_of(batch) for batch in given_out[: len(every[rank::4])]] == every[rank::4]
            assert set(built) == {one for batch in given_out for one in batch.rollout_ids}
            assert mine.report.trained_tokens == whole.report.trained_tokens
            assert mine.report.trajectories_used == whole.report.trajectories_used
        assert mine.count() == 3


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
@settings(laws, max_examples=examples(60))
@given(rollouts(storable=True), options(), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
def test_the_length_is_the_number_of_batches_once_it_is_known(found, chosen, world_size, rows, by_length, drop_last):
    by_length = by_length and not (chosen.get("packed") or chosen["keep_together"])
    chosen |= {"world_size": world_size, "drop_last": drop_last, "by_length": by_length}
    with stored(found, rows) as folder:
        made = art_otel.batches(folder, **chosen)
        assert made
        if found:
            with pytest.raises(TypeError, match=r"only known after.*count\(\)"):
                len(made)
        counted = art_otel.batches(folder, **chosen, rank=world_size - 1)
        number = counted.count()
        assert counted.report.trajectories == 0  # counting is no iteration
        whole = list(made)
        assert len(made) == len(whole) == number == len(counted) == len(list(counted))
        if len(whole) > 1:  # what is given after a state is no epoch
            first = art_otel.batches(folder, **chosen)
            next(iter(first))
            rest = art_otel.batches(folder, **chosen)
            rest.load_state_dict(first.state_dict())
            assert len(list(rest)) == number - 1
            with pytest.raises(TypeError):
                len(rest)
            rest.load_state_dict(first.state_dict())
            assert rest.count() == number
            assert len(list(rest)) == number - 1
    in_memory = art_otel.batches(found, **chosen)
    number = len(in_memory)
    assert number == len(list(in_memory))


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
    if chosen["keep_together"] != "group":  # whole groups are no equal shares
        assert max(report.trajectories for report in reports) - min(report.trajectories for report in reports) <= 1
    for name in ("trajectories", "trajectories_used", "completions", "trained_tokens", "drifts", "rewritten_prompts"):
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


@pytest.mark.long
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
