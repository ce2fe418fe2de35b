"""What batches refuse: options that make no sense, states of other streams, files that are gone or not the same."""

import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import art_otel
import art_otel.data
from art_otel.data import Credit, discounted, outcome_reward, reward_function, weighted
from art_otel.errors import StoreError, UsageError
from art_otel.store import write_trajectories
from tests.data.token_rollouts import EVERYTHING, STATUSES, judged, talk


def refuse(problem: str):
    return pytest.raises(UsageError, match=re.escape(problem))


BATCHES = [
    *(({"batch_size": wrong}, f"batch_size={wrong!r}: Expected `int`") for wrong in (0, 2.5, None, True, "a")),
    *(({"max_tokens": wrong}, f"max_tokens={wrong!r}: Expected `int") for wrong in (0, 2.5, "9")),
    *(({"pad_token_id": wrong}, f"pad_token_id={wrong!r}: Expected `int`") for wrong in (None, "0", 1.5, 2**31)),
    *(({"seed": wrong}, f"seed={wrong!r}: Expected `int") for wrong in (-1, 1.5, "a", True)),
    *(({"epoch": wrong}, f"epoch={wrong!r}: Expected `int`") for wrong in (-1, 1.5, None)),
    *(({"shuffle_buffer": wrong}, f"shuffle_buffer={wrong!r}: Expected `int`") for wrong in (0, 2.5, "a")),
    *(({"rank": wrong}, f"rank={wrong!r}: Expected `int`") for wrong in (None, "0", 0.5)),
    ({"rank": -1, "world_size": 2}, "rank=-1: Expected `int` >= 0"),
    ({"world_size": 0}, "world_size=0: Expected `int` >= 1"),
    ({"rank": 2, "world_size": 2}, "rank=2: with this world_size, ranks are 0 to 1"),
    ({"packed": True}, "packed=True needs max_tokens"),
    ({"packed": "yes"}, "packed='yes': use one of true, false"),
    ({"drop_last": 1}, "drop_last=1: use one of true, false"),
    ({"allow_incomplete": "no"}, "allow_incomplete=['no']: unknown reasons; use True, or some of missing root, "),
    ({"overflow": "cut"}, "overflow='cut': use one of drop, truncate, raise"),
    ({"zero_variance": "leave_out"}, "zero_variance='leave_out': use one of keep, drop"),
    ({"advantage": "ppo"}, "advantage='ppo': use one of grpo, "),
    ({"advantage": 3}, "advantage=3: use one of grpo, "),
    ({"credit": "final"}, "credit='final': use one of outcome_reward, step_reward, call_reward, or the result"),
    ({"credit": outcome_reward}, "credit=<function outcome_reward"),
    *(
        ({"token_rewards": wrong}, "weights=")
        for wrong in ("", ["a"], 5, {}, {"a": None}, {"a": "1"}, {5: 1.0}, {"": 1.0})
    ),
    ({"token_rewards": {"a": math.nan}}, "give a finite weight for each name"),
    *(({"split": wrong}, "split=") for wrong in (5, [["a"]], [5])),
    ({"status": 5}, "status=5: "),
    ({"status": ["fine", None]}, "status=('fine', None): "),
    ({"max_staleness": 1}, "name the version"),
    *(({"max_staleness": wrong, "policy_version": "3"}, f"max_staleness={wrong!r}") for wrong in ("2", 1.5, -1)),
    *(
        ({"policy_version": wrong}, f"policy_version={wrong!r}: Expected `int | str | null`")
        for wrong in ([], 1.5, True)
    ),
]


@pytest.mark.parametrize(("options", "problem"), BATCHES)
def test_options_that_make_no_sense_are_refused_before_anything_is_read(options, problem):
    with refuse(problem):
        art_otel.batches("no such folder", **options)


CREDITS = [
    *((weighted, wrong, f"weights={wrong!r}: Expected ") for wrong in ({}, ["a"], "a", {"a": None})),
    (weighted, {"a": math.inf}, "give a finite weight"),
    *((discounted, wrong, f"gamma={wrong!r}: Expected `float") for wrong in (-0.1, 1.1, math.nan, "x", None)),
    (reward_function, None, "reward_function(None): give a function"),
]


@pytest.mark.parametrize(("credit", "wrong", "problem"), CREDITS)
def test_credits_that_make_no_sense_are_refused(credit, wrong, problem):
    with refuse(problem):
        credit(wrong)


CONVERSATIONS = [
    *(({"batch_size": wrong}, f"batch_size={wrong!r}: Expected `int`") for wrong in ("a", None, 1.5, 0, True)),
    ({"reward": 5}, "reward=5: give a name, a function of a trajectory"),
    ({"status": "done"}, "status=('done',): use one of ok, error"),
]


@pytest.mark.parametrize("make", [art_otel.data.message_batches, art_otel.data.preference_batches])
@pytest.mark.parametrize(("options", "problem"), CONVERSATIONS)
def test_options_of_conversations_that_make_no_sense_are_refused(make, options, problem):
    with refuse(problem):
        make("no such folder", **options)


def test_options_of_one_kind_of_conversations():
    for wrong, problem in (("a", "Expected `float | null`"), (math.nan, "give a finite number"), (True, "Expected ")):
        with refuse(f"min_reward={wrong!r}: {problem}"):
            art_otel.data.message_batches([], min_reward=wrong)
    with refuse("pairs='most': use one of best_worst"):
        art_otel.data.preference_batches([], pairs="most")


ANSWERS = [
    ({"advantage": lambda rewards: ["a"] * len(rewards)}, "it returned ['a']; it must return a finite"),
    ({"advantage": lambda _: "a"}, "it returned 'a'; it must return a finite"),
    ({"advantage": lambda _: [0.0, 1.0]}, "it returned [0.0, 1.0]; it must return a finite"),
    ({"credit": reward_function(lambda _: "1")}, "credit: for rollout 'r', it returned '1' as a reward"),
    ({"credit": reward_function(lambda _: np.zeros(2))}, "as a reward; it must be a number, or None"),
    (
        {"credit": Credit(per="call", rewards=lambda _: None)},
        "returned None; it must return 1 rewards, one for each turn",
    ),
    ({"credit": Credit(per="call", rewards=lambda _: (0.0, 1.0))}, "returned (0.0, 1.0); it must return 1 rewards"),
]


@pytest.mark.parametrize(("options", "problem"), ANSWERS)
def test_functions_that_give_something_else_are_named(options, problem):
    with refuse(problem):
        list(art_otel.batches(talk("r", 1, reward=1.0), **options))


def test_a_reward_of_a_conversation_is_a_number():
    for make in (art_otel.data.message_batches, art_otel.data.preference_batches):
        made = make(talk("r", 1, group_id="g"), reward=lambda _: "1")
        with refuse("reward: for rollout 'r', it returned '1' as a reward"):
            list(made)


def test_numbers_of_numpy_are_numbers():
    found = [talk(f"r-{number}", 1, reward=number) for number in range(3)]
    numbers = {"batch_size": 2, "max_tokens": 9, "seed": 1, "epoch": 0, "shuffle_buffer": 1, "pad_token_id": 0}
    state = art_otel.batches(found, **numbers).state_dict()
    chosen = {name: np.int64(number) for name, number in numbers.items()}
    assert art_otel.batches(found, **chosen, rank=np.int64(0), world_size=np.int32(1)).state_dict() == state
    assert list(art_otel.batches(found, credit=reward_function(lambda one: np.float32(one.reward)))) != []


def test_no_status_asked_for_is_any():
    found = [talk(f"r-{status}", 1, status=status, reward=1.0) for status in STATUSES]
    (batch,) = art_otel.batches(found, status=None)
    assert len(batch.rollout_ids) == len(STATUSES)


def test_a_state_of_another_stream_is_refused(tmp_path):
    def load(sources, state, **chosen):
        art_otel.batches(sources, **EVERYTHING | chosen).load_state_dict(state)

    found = [talk(f"r-{number}", 1) for number in range(4)]
    state = art_otel.batches(found, **EVERYTHING, seed=1).state_dict()
    others = [
        ("dataset", found[1:], {"seed": 1}),
        ("order", found, {"seed": 2}),
        ("kept", found, {"seed": 1, "max_tokens": 8}),
        ("kept", found, {"seed": 1, "split": ["train"]}),
    ]
    for name, sources, chosen in others:
        with pytest.raises(UsageError, match=f"state: its {name} is "):
            load(sources, state, **chosen)
    with refuse("state: its order is "):
        art_otel.batches(found, **EVERYTHING, seed=1).of_worker(0, 2).load_state_dict(state)
    with refuse("state: its dataset is None"):
        load(found, {}, seed=1)
    for wrong in ("x", [1]):
        with refuse("give the result of state_dict() of earlier batches"):
            load(found, wrong, seed=1)
    with refuse("window=-1, an option of state: Expected `int` >= 0"):
        load(found, {**state, "window": -1}, seed=1)
    load(found, state, seed=1, rank=1, world_size=2, batch_size=3)  # any number of ranks, any size
    write_trajectories(found[:3], tmp_path / "a.parquet")
    state = art_otel.batches(tmp_path, **EVERYTHING).state_dict()
    write_trajectories(found, tmp_path / "a.parquet")
    with refuse("state: its dataset is "):
        load(tmp_path, state)


CHANGES = [
    {"reward": 1.0},
    {"rewards": (judged(0.5, "style"),)},
    {"status": "error"},
    {"incomplete_reasons": {"missing root": 1}},
    {"split": "train"},
    {"group_id": "g"},
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["memory", "files"])
def test_a_dataset_is_another_where_a_rollout_was_changed(tmp_path, where, change):
    """Files of one name and size too: which of two rollouts was changed is not seen in statistics."""
    bare = [talk(f"r-{number}", 1) for number in range(2)]
    one, other = [replace(bare[0], **change), bare[1]], [bare[0], replace(bare[1], **change)]
    sources = [one, other, one]
    if where == "files":
        sources = [tmp_path / name for name in ("one", "other", "copy")]
        write_trajectories(one, sources[0])
        write_trajectories(other, sources[1])
        shutil.copytree(sources[0], sources[2])
        assert len({next(folder.glob("*.parquet")).stat().st_size for folder in sources}) == 1
    first, second, again = (art_otel.batches(each, **EVERYTHING) for each in sources)
    with refuse("state: its dataset is "):
        second.load_state_dict(first.state_dict())
    assert first.state_dict() == again.state_dict() != second.state_dict()


def test_files_that_vanish_or_change_between_planning_and_reading_are_named(tmp_path):
    found = [talk(f"r-{number}", 1, reward=0.0) for number in range(4)]
    for name, error in (("gone", "gone"), ("changed", "changed.*(was written anew|is gone)")):
        write_trajectories(found, tmp_path / name)
        made = art_otel.batches(tmp_path / name)
        made.plan()
        if name == "gone":
            next((tmp_path / name).glob("part-*")).unlink()
        else:
            write_trajectories(list(reversed(found[1:])), tmp_path / name)
        with pytest.raises(StoreError, match=error):
            list(made)


def test_paths_without_trajectories_and_other_things_are_refused(tmp_path):
    for wrong in (tmp_path, tmp_path / "nothing", str(tmp_path / "*.parquet")):
        with pytest.raises(StoreError, match=r"parquet|no such file"):
            art_otel.batches(wrong)
    for other in ([3], [None], [b"out"], 5, None):
        with pytest.raises(UsageError, match="give paths of trajectory files, or trajectories"):
            art_otel.batches(other)


def test_rollouts_that_were_not_awaited_are_refused_as_such():
    for forgotten in (art_otel.gather_trajectories([]), [art_otel.gather_trajectory_groups({})]):
        with pytest.raises(UsageError, match="was not awaited; await it and pass the trajectories"):
            art_otel.batches(forgotten)
        if isinstance(forgotten, list):
            forgotten[0].close()


def test_a_file_that_is_given_twice_would_train_twice(tmp_path):
    write_trajectories([talk("r", 1)], tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    with pytest.raises(UsageError, match="is given twice"):
        art_otel.batches([tmp_path, file])


def test_span_dumps_name_the_command_that_converts_them(tmp_path):
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "spans.jsonl").write_text('{"resourceSpans": []}')
    with pytest.raises(StoreError, match=r"convert them first: art-otel convert .*dumps --out DATASET"):
        art_otel.batches(tmp_path / "dumps")
    with pytest.raises(StoreError, match="convert it first: art-otel convert DUMP --out DATASET"):
        art_otel.batches(tmp_path / "dumps" / "spans.jsonl")
