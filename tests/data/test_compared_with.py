"""Compared with whom: which rollouts are one group, who counts in a baseline, and what stays in one batch."""

import json
import math
import pickle
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import art_otel
from art_otel.data import gdpo, message_batches, outcome_reward, preference_batches, weighted
from art_otel.data.sources import list_chunks
from art_otel.errors import UsageError
from art_otel.store import FileLimits, write_trajectories
from art_otel.trajectories import GroupKey, PolicyVersions, TrajectoryGroup
from tests.data.rollouts import rollout, said
from tests.data.token_rollouts import judged, stored, talk
from tests.examples import daily
from tests.trajectories.calls import call, choice


def advantages(sources, **options):
    """The advantage of each rollout, and the report."""
    made = art_otel.batches(sources, **{"advantage": "centered", **options})
    found = {
        name: float(row[mask][0])
        for batch in made
        for name, row, mask in zip(batch.rollout_ids, batch.advantages, batch.loss_mask, strict=True)
    }
    return found, made.report


def members(*rewards, name="r", **fields):
    return [talk(f"{name}-{number}", 2, group_id="g", reward=reward, **fields) for number, reward in enumerate(rewards)]


def of_version(version: str) -> PolicyVersions:
    return PolicyVersions(first=version, last=version)


def test_a_group_id_in_another_gathering_is_another_group(tmp_path):
    first, second = members(0.0, 1.0, name="a", gathering="x"), members(5.0, 7.0, name="b", gathering="y")
    without = members(2.0, 4.0, name="c")
    expected = {"a-0": -0.5, "a-1": 0.5, "b-0": -1.0, "b-1": 1.0, "c-0": -1.0, "c-1": 1.0}
    found = [*first, *second, *without]
    write_trajectories(found, tmp_path / "out", limits=FileLimits(group_rows=1, part_rows=2))
    for source in (found, tmp_path / "out"):
        assert advantages(source)[0] == expected
    columns = art_otel.batches(tmp_path / "out", advantage="centered").decision_columns()
    assert columns.advantages.tolist() == list(expected.values())
    keys = [one.group_key for one in art_otel.read_trajectories(tmp_path / "out")]
    assert keys == [GroupKey(None, gathering, "g") for gathering in ("x", "x", "y", "y", None, None)]


def test_one_gathering_in_two_datasets_is_one_group(tmp_path):
    first, second = members(0.0, 1.0, gathering="x")
    write_trajectories([first], tmp_path / "a")
    write_trajectories([second], tmp_path / "b")
    found, report = advantages([tmp_path / "a", tmp_path / "b"])
    assert (found, report.shared_group_ids) == ({"r-0": -0.5, "r-1": 0.5}, 0)


def test_a_group_that_the_caller_made_is_one():
    first, second = replace(members(0.0)[0], gathering="x"), talk("s", 2, group_id="g", reward=1.0, gathering="y")
    assert advantages([first, second])[0] == {"r-0": 0.0, "s": 0.0}
    made = TrajectoryGroup(group_id="g", trajectories=[first, second])
    assert advantages([made])[0] == {"r-0": -0.5, "s": 0.5}


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "group_id": st.sampled_from([None, "a", "b"]),
                "training_step": st.sampled_from([None, 1, 2]),
                "gathering": st.sampled_from([None, "x", "y"]),
            }
        ),
        min_size=4,
        max_size=4,
    )
)
def test_a_group_that_the_caller_made_is_one_whatever_its_members_name(told):
    found = [replace(one, **fields) for one, fields in zip(members(0.0, 1.0, 5.0, 7.0), told, strict=True)]
    groups = [TrajectoryGroup(group_id=name, trajectories=two) for name, two in (("g", found[:2]), ("h", found[2:]))]
    assert advantages(groups)[0] == {"r-0": -0.5, "r-1": 0.5, "r-2": -1.0, "r-3": 1.0}


@pytest.mark.parametrize(
    ("told", "mixed"), [({}, 1), ({"training_step": 3}, 0), ({"gathering": "x"}, 0)], ids=["nothing", "step", "call"]
)
def test_a_group_of_several_policy_versions_is_one_and_that_is_said(tmp_path, told, mixed):
    found = [replace(one, policy_version=of_version(f"step-{at}")) for at, one in enumerate(members(0.0, 1.0, **told))]
    write_trajectories(found, tmp_path / "out")
    made = art_otel.batches(tmp_path / "out")
    if mixed:
        with pytest.warns(UserWarning, match=r"such as 'g', have .* several policy versions.*training_step=step"):
            list(made)
    else:
        list(made)
    assert advantages(found)[0] == {"r-0": -0.5, "r-1": 0.5}
    assert made.report.mixed_version_groups == mixed
    made.decision_columns()
    assert made.report.mixed_version_groups == mixed


def test_a_group_of_one_version_is_no_mixed_one():
    found = members(0.0, 1.0, policy_version=of_version("step-1"))
    found += members(1.0, 2.0, name="alone", policy_version=of_version("step-2"), training_step=3)
    assert advantages(found)[1].mixed_version_groups == 0


def test_held_out_splits_are_trained_only_where_they_are_named(tmp_path):
    found = [
        *members(0.0, 2.0, split="train"), *members(1.0, name="n"),
        *(members(9.0, name=split, split=split)[0] for split in ("val", "validation", "test", "eval")),
    ]  # fmt: skip
    write_trajectories(sorted(found, key=lambda one: one.order), tmp_path / "out")
    for source in (found, tmp_path / "out"):
        trained, report = advantages(source)
        assert trained == {"r-0": -1.0, "r-1": 1.0, "n-0": 0.0}
        assert report.trajectories_skipped == {"split": 4}
        assert set(advantages(source, split="*")[0]) == {one.rollout_id for one in found}
        assert set(advantages(source, split=["val", None])[0]) == {"val-0", "n-0"}
        assert set(advantages(source, split=[None])[0]) == {"n-0"}
    for split, left_out in ((None, 4), ("*", 0), ("val", 6)):
        whole = art_otel.batches(tmp_path / "out", split=split)
        whole.decision_columns()
        columns = whole.report
        assert columns.trajectories_skipped["split"] == left_out


def test_a_part_of_held_out_rollouts_is_not_opened(tmp_path):
    write_trajectories(members(1.0, split="val"), tmp_path / "out")
    made = art_otel.batches(tmp_path / "out")
    with pytest.warns(UserWarning, match=r"they have split 'val'\. Without split=, .* split=\"val\", or split=\"\*\""):
        assert list(made) == []
    (chunk,) = made._chunks
    assert chunk.left_out == "split"
    assert list_chunks(tmp_path / "out").chunks[0].left_out is None


def test_held_out_splits_stay_out_of_conversations_and_pairs():
    found = [said("yes", "a", 1.0), said("no", "b", 0.0), replace(said("maybe", "c", 0.5), split="test")]
    for made in (message_batches(found), preference_batches(found)):
        list(made)
        assert made.report.trajectories_skipped["split"] == 1
    for made in (message_batches(found, split="*"), preference_batches(found, split="*", pairs="all")):
        list(made)
        assert (made.report.trajectories_used, made.report.trajectories_skipped.total()) == (3, 0)


def test_who_counts_in_a_baseline(tmp_path):
    def member(name, reward, **fields):
        return replace(members(reward, name=name)[0], **fields)

    without_ids = rollout([call(0, "q", None, choice("a", None))], "w-0", group_id="g", reward=4.0)
    found = [
        member("a", 0.0), member("b", 8.0), without_ids, replace(talk("long", 9, group_id="g", reward=4.0)),
        member("c", 100.0, status="error"), member("d", 100.0, incomplete_reasons={"missing root": 1}),
        member("e", 100.0, split="val"), member("f", None), talk("alone", 2, group_id="h", reward=1.0),
    ]  # fmt: skip
    write_trajectories(sorted(found, key=lambda one: one.order), tmp_path / "out")
    trained, report = advantages(tmp_path / "out", max_tokens=6)
    assert trained == {"a-0": -4.0, "b-0": 4.0, "alone": 0.0}
    assert report.compared == 4  # a, b, and those without ids or too long
    made = art_otel.batches(tmp_path / "out", max_tokens=6)
    made.decision_columns()
    assert made.report.compared == 4
    assert advantages(found, advantage="reinforce_plus_plus")[1].compared == 5
    assert art_otel.batches(found, advantage=None).plan().compared == 0


def independent_gdpo(groups, weights):
    """GDPO by hand, as TRL writes it: NaN for a reward that is unknown."""

    def std(values):
        mean = sum(values) / len(values)
        return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) if len(values) > 1 else 0.0

    sums = []
    for group in groups:
        count = len(next(iter(group.values())))
        totals = [0.0] * count
        known = [False] * count
        for name, weight in weights.items():
            values = [value for value in group[name] if value is not None]
            for at, value in enumerate(group[name]):
                if value is not None:
                    totals[at] += weight * (value - sum(values) / len(values)) / (std(values) + 1e-4)
                    known[at] = True
        sums.append([total if is_known else None for total, is_known in zip(totals, known, strict=True)])
    all_sums = [total for group in sums for total in group if total is not None]
    mean, deviation = sum(all_sums) / len(all_sums), std(all_sums)
    return [[math.nan if one is None else (one - mean) / (deviation + 1e-4) for one in group] for group in sums]


GROUPS = [
    {"correct": [1.0, 0.0, 1.0, 0.0], "length": [9.0, 8.0, 7.0, 8.5]},
    {"correct": [0.0, 0.0, 0.0, 1.0], "length": [0.1, 0.2, 0.2, 0.1]},
    {"correct": [1.0, None, 0.0, None], "length": [3.0, 1.0, None, None]},
]
WEIGHTS = {"correct": 1.0, "length": 0.3}


def test_gdpo_is_the_formula():
    for groups in (
        GROUPS,
        GROUPS[:1],
        [{"correct": [1.0], "length": [2.0]}],
        [{"correct": [1.0] * 3, "length": [2.0] * 3}],
    ):
        for ours, theirs in zip(gdpo(groups, WEIGHTS), independent_gdpo(groups, WEIGHTS), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert gdpo([], WEIGHTS) == ()


def rewarded(name, number, group, at):
    rewards = tuple(judged(values[at], key) for key, values in group.items() if values[at] is not None)
    return talk(f"{name}-{at}", 2, rewards=rewards, group_id=f"g{number}")


def test_gdpo_of_recorded_rewards(tmp_path):
    whole = GROUPS[:2]
    found = [rewarded(f"r{number}", number, group, at) for number, group in enumerate(whole) for at in range(4)]
    expected = {
        f"r{number}-{at}": np.float32(value)
        for number, group in enumerate(independent_gdpo(whole, WEIGHTS))
        for at, value in enumerate(group)
    }
    # Who lacks one of the rewards has none, as `weighted` says, and counts in no baseline.
    found.append(talk("z", 2, rewards=(judged(5.0, "correct"),), group_id="g0"))
    write_trajectories(found, tmp_path / "out")
    options = {"advantage": "gdpo", "credit": weighted(WEIGHTS)}
    for source in (found, tmp_path / "out"):
        trained, report = advantages(source, **options)
        assert trained == pytest.approx(expected)
        assert (report.compared, report.completions_skipped) == (8, {"no reward": 1})
    made = art_otel.batches(tmp_path / "out", **options)
    assert made.decision_columns().advantages[:8].astype(np.float32).tolist() == pytest.approx(list(expected.values()))
    alone, _ = advantages(found, advantage="gdpo", credit=outcome_reward("correct"))
    by_name, _ = advantages(found, advantage="gdpo", credit=weighted({"correct": 1.0}))
    assert alone == by_name  # a credit that names no weights gives one reward


def test_equal_sums_of_different_rewards_are_no_equal_rewards():
    different = {"correct": [1.0, 0.0], "length": [0.0, 1.0]}
    found = [rewarded("r", 0, different, at) for at in range(2)] + [
        rewarded("s", 1, {"correct": [1.0, 1.0], "length": [2.0, 2.0]}, at) for at in range(2)
    ]
    credit = pickle.loads(pickle.dumps(weighted({"correct": 1.0, "length": 1.0})))
    assert advantages(found, credit=credit, advantage="gdpo", zero_variance="drop")[0].keys() == {"r-0", "r-1"}
    assert advantages(found, credit=credit, zero_variance="drop")[0] == {}


def branched(name: str, *sizes: int, **fields):
    """A rollout of so many sequences: calls that continue none of each other."""
    calls = [
        call(number, f"q{number}", [50 + number], choice(f"a{number}", [100] * size))
        for number, size in enumerate(sizes)
    ]
    return rollout(calls, name, **fields)


def held(made):
    """The rollouts of each batch, one for each sequence."""
    return [batch.rollout_ids.tolist() for batch in made]


FORKED = [
    branched(f"r-{number}", *sizes, group_id=group, reward=float(number))
    for number, (group, sizes) in enumerate(
        [("g", (2, 3)), ("h", (1,)), ("g", (4, 1, 2)), ("h", (2, 2)), ("i", (1, 1, 1, 1))]
    )
]


def test_rollouts_are_kept_together():
    made = art_otel.batches(FORKED, batch_size=4, keep_together="rollout")
    assert held(made) == [["r-0", "r-0", "r-1"], ["r-2", "r-2", "r-2"], ["r-3", "r-3"], ["r-4"] * 4]
    assert held(art_otel.batches(FORKED, batch_size=2, keep_together="rollout"))[1] == ["r-1"]
    assert (
        max(map(len, held(art_otel.batches(FORKED, batch_size=2, keep_together="rollout")))) == 4
    )  # a batch of its own
    packed = held(art_otel.batches(FORKED, batch_size=2, keep_together="rollout", packed=True, max_tokens=5))
    for name in ("r-0", "r-2", "r-3", "r-4"):
        assert sum(name in batch for batch in packed) == 1
    with pytest.raises(UsageError, match="by_length=True and keep_together"):
        art_otel.batches(FORKED, by_length=True, keep_together="group")


@pytest.mark.parametrize("seed", daily([3, None], one_in=2))
def test_groups_are_kept_together_wherever_their_members_stand(seed):
    with stored(FORKED, rows=1) as folder:
        options = {"batch_size": 5, "keep_together": "group", "seed": seed, "shuffle_buffer": 1}
        whole = held(art_otel.batches(folder, **options))
        place = {
            name: {at for at, batch in enumerate(whole) if name in batch}
            for name in ("r-0", "r-1", "r-2", "r-3", "r-4")
        }
        assert place["r-0"] == place["r-2"]
        assert place["r-1"] == place["r-3"]
        assert all(len(places) == 1 for places in place.values())
        made = art_otel.batches(folder, **options)
        states = [json.loads(json.dumps(made.state_dict())) for _ in made]
        for at, state in enumerate(states):
            rest = art_otel.batches(folder, **options)
            rest.load_state_dict(state)
            assert held(rest) == whole[at + 1 :]
        parts = [held(art_otel.batches(folder, **options).of_worker(index, 2)) for index in range(2)]
        assert sorted(name for part in parts for batch in part for name in batch) == sorted(
            name for batch in whole for name in batch
        )
        assert not {name for batch in parts[0] for name in batch} & {name for batch in parts[1] for name in batch}


def test_each_rollout_weighs_alike():
    """As SkyRL's `prompt_mean` with a rollout for a prompt: token [i, t] of p has 1 / (prompts * tokens in p)."""
    for options in ({"batch_size": 4}, {"batch_size": 2, "packed": True, "max_tokens": 12}):
        loss = lambda batch: (batch.input_ids * 1.5 + batch.position_ids) * batch.loss_mask  # noqa: E731 # any numbers
        for batch in art_otel.batches(FORKED, keep_together="rollout", **options):
            of_sequence = np.concatenate([[""], batch.rollout_ids])[batch.segment_ids]
            means = [
                loss(batch)[(of_sequence == name) & batch.loss_mask].mean()
                for name, _ in groupby(sorted(set(batch.rollout_ids)))
            ]
            weighted_loss = (loss(batch) * batch.rollout_weights).sum() / batch.rollout_weights.sum()
            assert weighted_loss == pytest.approx(np.mean(means), rel=1e-6)
            assert batch.rollout_weights.sum() == pytest.approx(len(set(batch.rollout_ids)))
            assert not batch.rollout_weights[~batch.loss_mask].any()
