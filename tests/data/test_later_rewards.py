"""Rewards that are given to trajectories in hand, after they were made."""

from dataclasses import FrozenInstanceError

import pytest

import art_otel
from art_otel.data import message_batches
from tests.exporting.samples import conversation


def test_a_reward_given_to_what_is_in_hand_reaches_all_that_learn_from_it(tmp_path):
    """The record stays as it is."""
    trajectory, other = (conversation(f"r-{one}", "Rain.", None) for one in "ab")
    art_otel.reward(0.5, target=trajectory)
    art_otel.reward(1.0, "style", target=trajectory)
    assert trajectory.rewards == ()
    report = art_otel.export([trajectory, other], "openai", tmp_path / "sft.jsonl", min_reward=0.5)
    assert (report.records, report.trajectories_skipped) == (1, {"no reward": 1})
    talks = message_batches([trajectory, other], reward="style")
    assert [one.reward for one in talks.examples()] == [1.0, None]
    art_otel.reward(2.0, "call", target=trajectory.calls[1])
    art_otel.write_trajectories([trajectory], tmp_path / "dataset")
    (written,) = art_otel.read_trajectories(tmp_path / "dataset")
    assert {one.name: (one.value, one.target) for one in written.rewards} == {
        "reward": (0.5, None),
        "style": (1.0, None),
        "call": (2.0, trajectory.calls[1].span_id),
    }
    assert written.reward == 0.5


def test_an_assignment_says_what_to_do_in_its_place():
    trajectory = conversation("r", "Rain.", None)
    with pytest.raises(FrozenInstanceError, match=r"art_otel\.reward\(1\.0, target=trajectory\).*replace\(trajectory"):
        trajectory.reward = 1.0
    with pytest.raises(FrozenInstanceError, match=r"a copy, dataclasses\.replace\(trajectory, name=…\)"):
        trajectory.name = "x"
    group = art_otel.TrajectoryGroup(group_id="g", trajectories=[trajectory])
    with pytest.raises(FrozenInstanceError, match=r"a copy, dataclasses\.replace\(group, group_id=…\)"):
        group.group_id = "x"


def test_the_report_of_batches_is_short_lines():
    made = art_otel.batches([conversation("r", "Rain.", 1.0), conversation("s", "Rain.", 1.0, split="val")])
    list(made)
    lines = str(made.report).splitlines()
    assert lines[:2] == ["trajectories  2: 1 used", "completions   2: 2 trained"]
    assert "trajectories skipped  split: 1" in lines
    assert max(map(len, lines)) < 100
