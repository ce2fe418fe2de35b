"""Metrics of an entry: ART's names and means, and what is unknown or no finite number is absent and named."""

import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel import TrajectoryGroup, read_trajectories
from art_otel.runlog.metrics import batch_metrics, prefixed
from tests.runlog.entries import counts, metrics, one


def test_metrics_alone_write_no_trajectories(run_log):
    entry = run_log.log(metrics={"loss/train": 0.5, "reward": 1, "custom/x": True}, split="train", step=7)
    assert entry.file is None
    assert entry.metrics == {"loss/train": 0.5, "train/reward": 1.0, "train/custom/x": 1.0}
    assert not (run_log.folder.path / "trajectories").exists()


def test_given_metrics_win_over_the_batch(run_log):
    entry = run_log.log([one("a", 1.0)], "val", 0, {"reward": 0.25, "data/step_num_scenarios": 9})
    assert (entry.metrics["val/reward"], entry.metrics["data/step_num_scenarios"]) == (0.25, 9.0)


def test_what_is_unknown_is_absent_and_counted(run_log):
    entry = run_log.log([one("a"), one("b", math.nan), one("c", math.inf)], "val", 0)
    assert metrics(entry) == {"val/exception_rate": 0.0}
    assert counts(entry)["trajectories_without_reward"] == 3
    assert metrics(run_log.log([], "val", 1)) == {}


def test_a_metric_of_a_trajectory_that_is_no_finite_number_is_left_out_and_named(run_log):
    odd = one("b", 0.5, metrics={"acc": math.nan, "kl": math.inf, "turns": 2.0})
    group = TrajectoryGroup(
        group_id="g", trajectories=[one("a", 0.5, metrics={"acc": 1.0}), odd], metrics={"agree": math.nan}
    )
    entry = run_log.log([group], "train", 0)
    means = {"train/acc": 1.0, "train/turns": 2.0, "train/exception_rate": 0.0}
    assert metrics(entry) == {**means, "train/reward": 0.5, "train/reward_std_dev": 0.0}
    assert entry.skipped == ("train/acc", "train/kl", "train/group_agree")
    # ART's reader refuses a file in which a metric is null.
    assert pl.read_parquet(entry.file)["metrics"].to_list() == ['{"acc":1.0}', '{"turns":2.0}']
    assert [trajectory.metrics for trajectory in read_trajectories(entry.file)] == [{"acc": 1.0}, {"turns": 2.0}]


def test_what_is_no_finite_number_is_left_out_and_named(run_log):
    entry = run_log.log(metrics={"loss": math.nan, "kl": math.inf, "later": None, "lr": 1e-5}, split="train", step=0)
    assert entry.metrics == {"train/lr": 1e-5}
    assert entry.skipped == ("train/loss", "train/kl", "train/later")
    assert not {"train/loss", "train/kl", "train/later"} & set(run_log.history()[0])


def test_exceptions_are_rollouts_that_raised(run_log):
    batch = [one(status, status=status) for status in ("ok", "error", "cancelled", "unfinished")]
    assert metrics(run_log.log(batch, "train", 0)) == {"train/exception_rate": 0.5}


def test_metrics_of_trajectories_are_averaged_over_those_that_have_them(run_log):
    batch = [
        one("a", metrics={"turns": 2.0, "costs/judge": 0.5}),
        one("b", metrics={"turns": 4.0, "costs/judge": 0.25}),
    ]
    found = metrics(run_log.log([*batch, one("c", metrics={"bad": math.nan})], "train", 0))
    assert found == {"train/exception_rate": 0.0, "train/turns": 3.0, "costs/judge": 0.75}


def test_groups_have_metrics_and_give_their_id_to_their_members(run_log):
    groups = [
        TrajectoryGroup(
            group_id="g", trajectories=[one("a", 1.0), one("b", 0.0)], metrics={"agree": 0.5, "costs/x": 1}
        ),
        TrajectoryGroup(group_id="h", trajectories=[one("c", 0.5, "other")], metrics={"agree": 1.0, "costs/x": 2}),
    ]
    entry = run_log.log(iter(groups), "train", 0)
    assert metrics(entry) == {
        "train/reward": 0.5,
        "train/exception_rate": 0.0,
        "train/reward_std_dev": 0.5,
        "train/group_agree": 0.75,
        "costs/x": 3.0,
    }
    assert [stored.group_id for stored in read_trajectories(entry.file)] == ["g", "g", "other"]


NAMES = st.text(st.sampled_from("abc/"), max_size=5) | st.sampled_from(
    ["reward", "reward/x", "loss/kl", "train/x", "val", "data/step_x", "time/y", "custom/z", "discarded/q", "/", ""]
)
PLACED = ("reward", "loss", "offpolicy", "pipeline", "throughput", "costs", "time", "data", "train", "val", "test")


@given(NAMES, st.sampled_from(["train", "val", "test", "dev", "reward"]))
def test_names_are_placed_as_art_places_them(name, split):
    (placed,) = prefixed({name: 1.0}, split)
    stays = split in ("train", "val", "test") and name.startswith(tuple(f"{section}/" for section in PLACED))
    assert placed == (name if stays else f"{split}/{name}")


REWARDS = st.lists(st.lists(st.none() | st.integers(-8, 8).map(float), max_size=4), max_size=4)


@given(REWARDS)
def test_means_and_spreads_are_those_of_the_known_rewards(rewards):
    groups = [
        TrajectoryGroup(group_id=str(at), trajectories=[one(f"{at}-{n}", value) for n, value in enumerate(values)])
        for at, values in enumerate(rewards)
    ]
    found = batch_metrics(groups, "train")
    known = [[Fraction(value) for value in values if value is not None] for values in rewards]
    every = [value for values in known for value in values]
    assert ("reward" in found) == bool(every)
    if every:
        assert found["reward"] == pytest.approx(float(sum(every) / len(every)))
    spreads = [
        math.sqrt(sum((value - sum(values) / len(values)) ** 2 for value in values) / len(values))
        for values in known
        if len(values) > 1
    ]
    assert ("reward_std_dev" in found) == bool(spreads)
    if spreads:
        assert found["reward_std_dev"] == pytest.approx(sum(spreads) / len(spreads))
    assert found["data/step_num_trajectories_without_reward"] == sum(values.count(None) for values in rewards)


def test_a_trajectorys_metric_does_not_pass_for_the_batchs_reward():
    given = TrajectoryGroup(group_id="g", trajectories=(one("r", metrics={"reward": 5.0, "steps": 2.0}),))
    found = batch_metrics([given], "val")
    assert "reward" not in found
    assert found["steps"] == 2.0
