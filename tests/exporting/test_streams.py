"""Streams: each kind of encoder gets its items, of the chosen trajectories, with the rewards that were asked for."""

from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from art_otel.data import call_reward, step_reward
from art_otel.errors import UsageError
from art_otel.exporting import Exporter, ExportReport, Format, JsonLines, NothingToExportError, export
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory, TrajectoryGroup
from art_otel.trajectories.lineage import recorded_call
from tests.exporting.samples import branching, conversation, failed, group, rollout, samples, without_ids


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    pass


def exporter_of(takes: str, encode, **fields) -> Exporter:
    """An exporter whose one format is encoded so."""
    plain = {"summary": "", "needs": "", "not_carried": {}, "config": NoOptions, "sink": lambda _: JsonLines()}
    file_format = Format(name="test", input=takes, encode=encode, **(plain | fields))
    return Exporter(name="test", summary="", formats=(file_format,))


def export_or_why_not(*arguments, **options) -> ExportReport:
    """The report of an export, also of one that has no record."""
    try:
        return export(*arguments, **options)
    except NothingToExportError as nothing:
        return nothing.report


def items_of(sources, takes: str, choice: dict, out, *, advantage: str | None = None):
    """The items that an encoder of this format is given, and the report."""
    items = []

    def encode(stream, config, stats):  # noqa: ARG001 # the signature of an encoder
        for item in stream:
            items.append(item)
            yield {}

    not_carried = {"logs": "l", "usage": "u", "step": "s", "logprobs": "p"}
    exporter = exporter_of(takes, encode, advantage=advantage, not_carried=not_carried)
    report = export_or_why_not(sources, exporter, out, **choice)
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


def left_out(sources, takes: str, out, reasons: dict, **fields):
    """The report of an encoder that leaves out the items for which there is a reason, by rollout and turns."""

    def encode(stream, config, stats):  # noqa: ARG001 # the signature of an encoder
        for item in stream:
            if (reason := reasons.get(item.rollout_id, reasons.get(item.turns))) is None:
                yield {}
            else:
                stats.skipped.update(reason)

    report = export_or_why_not(sources, exporter_of(takes, encode, **fields), out)
    assert report.trajectories == report.trajectories_used + sum(report.trajectories_skipped.values())
    return report


@pytest.mark.parametrize("takes", ["sequences", "conversations"])
def test_a_trajectory_whose_items_were_all_left_out_is_left_out_for_their_commonest_reason(tmp_path, takes):
    reasons = {"r-good": ["too good"], "r-branching": ["b", "a", "b"]}
    report = left_out([*group(), branching()], takes, tmp_path, reasons)
    assert (report.trajectories_used, report.records) == (2, 2)
    assert report.trajectories_skipped == {"too good": 1, "b": 1}
    items = 3 if takes == "sequences" else report.skipped["a"]
    assert report.skipped == {"too good": 1, "b": 2 * items, "a": items}


def test_a_trajectory_of_which_one_item_became_a_record_is_used(tmp_path):
    first, *others = [item.turns for item in items_of([branching()], "sequences", {}, tmp_path)[0]]
    for kept in (first, others[-1]):
        reasons = {turns: ["not this one"] for turns in (first, *others) if turns != kept}
        report = left_out([branching()], "sequences", tmp_path, reasons)
        assert (report.records, report.trajectories_used, report.trajectories_skipped) == (1, 1, {})
        assert report.skipped == {"not this one": len(others)}


def test_attempts_of_one_rollout_are_counted_one_by_one(tmp_path):
    attempts = [conversation("r", "Rain.", 1.0, attempt=number) for number in range(3)]
    report = left_out(attempts, "sequences", tmp_path, {"r": ["no"]}, imitates=True)
    assert (report.trajectories, report.trajectories_skipped) == (3, {"no": 3})


@pytest.mark.parametrize(("takes", "fields"), [("sequences", {"imitates": True}), ("conversations", {})])
def test_what_was_left_out_is_not_counted_as_unsuccessful(tmp_path, takes, fields):
    rollouts = [conversation(name, "Rain.", 0.0) for name in ("a", "b")]
    report = left_out(rollouts, takes, tmp_path, {"a": ["no"]}, **fields)
    assert (report.trajectories_used, report.unsuccessful) == (1, 1)


def test_an_encoder_that_reads_all_items_before_its_first_record_has_used_them(tmp_path):
    def encode(stream, config, stats):  # noqa: ARG001 # the signature of an encoder
        items = list(stream)
        stats.skipped["the last one"] += 1
        yield from ({} for _ in items[:-1])

    report = export(group(), exporter_of("sequences", encode), tmp_path)
    assert (report.trajectories_used, report.trajectories_skipped, report.records) == (3, {}, 2)


def test_histories_that_are_in_no_pair_are_counted(tmp_path):
    (pair,), report = items_of([branching(), conversation("a", "Sun.", 0.0)], "preferences", {}, tmp_path)
    assert (pair.chosen_rollout_id, pair.rejected_rollout_id) == ("r-branching", "a")
    assert report.skipped == {"histories: not the main one of their trajectory": 2}


@pytest.mark.parametrize(
    ("takes", "choice", "problem"),
    [
        ("trajectories", {"max_tokens": 1}, "not cut by tokens"),
        ("conversations", {"max_tokens": 1}, "not cut by tokens"),
        ("preferences", {"credit": step_reward()}, "trained without rewards"),
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
    blind = rollout("r", [structs.replace(recorded_call(known.calls[0]), input_messages=None)], reward=1.0)
    items, report = items_of([blind], "conversations", {}, tmp_path)
    assert (items, report.trajectories_used) == ([], 0)
    assert sum(report.trajectories_skipped.values()) == 1
