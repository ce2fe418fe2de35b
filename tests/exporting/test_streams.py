"""Streams: each kind of encoder gets its items, of the chosen trajectories, with the rewards that were asked for."""

from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from art_otel.data import call_reward, step_reward
from art_otel.errors import UsageError
from art_otel.exporting import Exporter, Format, JsonLines, export
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory, TrajectoryGroup
from tests.exporting.samples import branching, conversation, failed, group, rollout, samples, without_ids


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    pass


def items_of(sources, takes: str, choice: dict, out, *, advantage: str | None = None):
    """The items that an encoder of this format is given, and the report."""
    items = []

    def encode(stream, config, stats):  # noqa: ARG001 # the signature of an encoder
        for item in stream:
            items.append(item)
            yield {}

    file_format = Format(
        name="test",
        summary="",
        input=takes,
        needs="",
        not_carried={"logs": "l", "usage": "u", "step": "s", "logprobs": "p"},
        config=NoOptions,
        encode=encode,
        sink=lambda _: JsonLines(),
        advantage=advantage,
    )
    report = export(sources, Exporter(name="test", summary="", formats=(file_format,)), out, **choice)
    assert report.records == len(items)
    assert report.trajectories == report.trajectories_used + sum(report.trajectories_skipped.values())
    return items, report


@pytest.fixture
def rollouts() -> list[Trajectory]:
    return sorted(
        [*group(), without_ids(), failed(), conversation("r-val", "Rain.", 1.0, split="val")], key=lambda one: one.order
    )


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("takes", ["trajectories", "sequences", "conversations", "preferences"])
def test_the_same_choice_stands_behind_every_stream(tmp_path, rollouts, takes, stored):
    sources = rollouts
    if stored:
        sources = tmp_path / "dataset"
        write_trajectories(rollouts, sources)
    items, report = items_of(sources, takes, {"split": "train"}, tmp_path / "out")
    assert report.trajectories == 6
    ids = {
        "trajectories": lambda item: item.trajectory.rollout_id,
        "sequences": lambda item: item.rollout_id,
        "conversations": lambda item: item.rollout_id,
        "preferences": lambda item: (item.chosen_rollout_id, item.rejected_rollout_id),
    }[takes]
    expected = {
        "trajectories": ["r-bad", "r-fair", "r-good", "r-without-ids"],
        "sequences": ["r-bad", "r-fair", "r-good"],
        "conversations": ["r-bad", "r-fair", "r-good", "r-without-ids"],
        "preferences": [("r-good", "r-bad")],
    }[takes]
    assert [ids(item) for item in items] == expected
    assert report.trajectories_skipped["status"] == report.trajectories_skipped["split"] == 1
    not_carried = {name: lost.trajectories for name, lost in report.not_carried.items()}
    assert not_carried == {"logs": 1, "usage": 0, "step": 3, "logprobs": None}


def test_one_trajectory_a_group_and_an_iterator_are_sources(tmp_path):
    one = conversation("a", "Rain.", 1.0)
    for sources in (one, TrajectoryGroup(group_id="g", trajectories=[one]), iter([one])):
        items, report = items_of(sources, "trajectories", {}, tmp_path)
        assert [item.trajectory for item in items] == [one]
        assert report.not_carried["step"].trajectories == 1


def test_without_a_rank_there_are_no_advantages_and_no_reward_is_needed(tmp_path):
    none = conversation("a", "Rain.", None)
    ((item,), report) = items_of([none], "sequences", {}, tmp_path)
    assert item.advantages is None
    assert (item.reward, report.trajectories_used) == (None, 1)
    ((item,), report) = items_of([none], "sequences", {"advantage": "grpo"}, tmp_path)
    assert item.advantages is None
    assert report.not_carried["advantages"].why.startswith("asked for")


def test_with_a_rank_they_are_those_of_grpo_or_as_asked(tmp_path):
    grpo, report = items_of(group(), "sequences", {}, tmp_path, advantage="grpo")
    assert "advantages" not in report.not_carried
    assert [round(float(item.advantages.max() + item.advantages.min()), 3) for item in grpo] == [1.225, 0.0, -1.225]
    centered, _ = items_of(group(), "trajectories", {"advantage": "centered"}, tmp_path, advantage="grpo")
    assert [[turn.advantage for turn in item.turn_rewards] for item in centered] == [[0.5] * 2, [0.0] * 2, [-0.5] * 2]
    plain, _ = items_of(group(), "sequences", {"advantage": None}, tmp_path, advantage="grpo")
    assert all(item.advantages is None for item in plain)
    own, _ = items_of(
        group(), "trajectories", {"advantage": lambda rewards: [7.0] * len(rewards)}, tmp_path, advantage="grpo"
    )
    assert {turn.advantage for item in own for turn in item.turn_rewards} == {7.0}


def test_credit_says_which_reward_a_turn_has(tmp_path):
    items, _ = items_of(group()[:1], "trajectories", {"credit": step_reward()}, tmp_path)
    assert [turn.reward for turn in items[0].turn_rewards] == [None, 0.25]
    items, _ = items_of(group()[:1], "trajectories", {"credit": call_reward()}, tmp_path)
    assert [turn.reward for turn in items[0].turn_rewards] == [None, None]


def test_long_sequences_are_left_out_and_counted(tmp_path):
    items, report = items_of([branching(), *group()], "sequences", {"max_tokens": 60}, tmp_path)
    everything, _ = items_of([branching(), *group()], "sequences", {}, tmp_path)
    assert [item.turns for item in items] == [item.turns for item in everything if len(item) <= 60]
    assert 0 < len(items) < len(everything)
    assert report.skipped["sequences: longer than max_tokens"] == len(everything) - len(items)


def test_histories_that_are_in_no_pair_are_counted(tmp_path):
    (pair,), report = items_of([branching(), conversation("a", "Sun.", 0.0)], "preferences", {}, tmp_path)
    assert (pair.chosen_rollout_id, pair.rejected_rollout_id) == ("r-branching", "a")
    assert report.skipped == {"histories: not the main one of their trajectory": 2}


@pytest.mark.parametrize(
    ("takes", "choice", "problem"),
    [
        ("trajectories", {"max_tokens": 1}, "not cut by tokens"),
        ("conversations", {"max_tokens": 1}, "not cut by tokens"),
        ("preferences", {"credit": step_reward()}, "trained with no reward"),
        ("trajectories", {"status": "good"}, "use one of ok, "),
        ("sequences", {"max_tokens": 0}, "Expected `int` >= 1"),
    ],
)
def test_what_a_kind_has_nothing_of_is_refused(tmp_path, takes, choice, problem):
    with pytest.raises(UsageError, match=problem):
        items_of(group(), takes, choice, tmp_path)


def test_an_advantage_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(UsageError, match="advantage"):
        items_of(group(), "sequences", {"advantage": "best"}, tmp_path, advantage="grpo")


def test_incomplete_ones_are_left_out_unless_allowed(tmp_path):
    torn = replace(conversation("a", "Rain.", 1.0), incomplete_reasons={"lost spans": 1})
    _, report = items_of([torn], "trajectories", {}, tmp_path)
    assert report.trajectories_skipped == {"incomplete: lost spans": 1}
    _, report = items_of([torn], "trajectories", {"allow_incomplete": True}, tmp_path)
    assert report.trajectories_used == 1


def test_every_sample_is_used_or_left_out(tmp_path):
    for takes in ("trajectories", "sequences", "conversations", "preferences"):
        items_of(samples(), takes, {"allow_incomplete": True, "status": ("ok", "error")}, tmp_path)


def test_choices_that_can_be_asked_only_once_are_kept(rollouts, tmp_path):
    once = {"split": iter(["val"]), "status": iter(["ok"])}
    items, report = items_of(rollouts, "trajectories", once, tmp_path)
    assert [item.trajectory.rollout_id for item in items] == ["r-val"]
    assert report.not_carried["usage"].trajectories is not None


def test_a_trajectory_of_which_nothing_can_be_exported_is_left_out(tmp_path):
    known = conversation("r", "Rain.", 1.0)
    blind = rollout("r", [structs.replace(known.calls[0], input_messages=None)], reward=1.0)
    items, report = items_of([blind], "conversations", {}, tmp_path)
    assert (items, report.trajectories_used) == ([], 0)
    assert sum(report.trajectories_skipped.values()) == 1
