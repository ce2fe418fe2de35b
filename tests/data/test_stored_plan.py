"""Stored plans: the next process gets the same plan at once, and never one that something else decided."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import art_otel
from art_otel.data import OverGroups, reward_function, weighted
from art_otel.data.batches import batches
from art_otel.data.columns import Coded
from art_otel.sources.files.inputs import has_own_name
from art_otel.store import PLAN_PREFIX, write_trajectories
from art_otel.trajectories import Reward, Trajectory
from tests.data.token_rollouts import judged, talk

pytestmark = pytest.mark.long  # datasets of fewer rollouts have no stored plans

ROLLOUTS = 5_200

OPTIONS = (
    {},
    {"advantage": None, "status": None},
    {"advantage": "gdpo", "credit": weighted({"reward": 1.0, "style": 0.5})},
    {"advantage": "rloo", "zero_variance": "drop", "max_tokens": 6, "overflow": "truncate"},
    {"credit": "call_reward", "advantage": "reinforce_plus_plus", "split": "*"},
)


def rollouts(shift: float = 0.0) -> Iterator[Trajectory]:
    """Groups of 8, some without rewards, some with unusable ones, some held out."""
    templates = [talk("r", *range(2, 4 + kind % 3), training_step=1) for kind in range(5)]
    for number in range(ROLLOUTS):
        value = (0.0, 1.0, None, 0.3, 1e300 if number % 800 == 0 else 0.7)[number % 5]
        given: tuple[Reward, ...] = () if value is None else (judged(value + shift), judged(0.25, "style"))
        yield replace(
            templates[number % 5],
            rollout_id=f"r-{number:05d}",
            trace_id=f"{number:032x}",
            group_id=f"g-{number // 8}",
            split="val" if number % 100 == 0 else None,
            reward=None if value is None else value + shift,
            rewards=given,
        )


def plans_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PLAN_PREFIX}*"))


def check_equal(one: object, other: object, path: str = "plan") -> None:
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, path)
        assert one.dtype == other.dtype, path
    elif isinstance(one, Coded):
        assert list(one) == list(other), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for name, value in one.items():
            check_equal(value, other[name], f"{path}.{name}")
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            check_equal(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    else:
        assert one == other, path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    write_trajectories(rollouts(), folder)
    return folder


@pytest.mark.parametrize("options", OPTIONS, ids=lambda chosen: "-".join(chosen) or "defaults")
def test_a_plan_that_is_found_is_the_one_that_was_made(dataset: Path, options):
    for path in plans_in(dataset):
        path.unlink()
    made = batches(dataset, **options).plan()
    (path,) = plans_in(dataset)
    written = path.stat().st_mtime_ns
    found = batches(dataset, **options).plan()
    check_equal(found, made)
    assert [path.stat().st_mtime_ns for path in plans_in(dataset)] == [written]
    assert not found.decisions.rewards.flags.writeable  # it is the file's
    in_memory = batches(list(art_otel.read_trajectories(dataset)), **options)
    check_equal(found.decisions, in_memory.plan().decisions)
    page = batches(dataset, **options)
    in_memory.decision_columns()
    page.decision_columns()
    assert page.report == in_memory.report


def test_other_options_and_other_content_are_other_plans(tmp_path: Path):
    write_trajectories(rollouts(), tmp_path)
    first = batches(tmp_path).plan()
    (of_first,) = plans_in(tmp_path)
    other = batches(tmp_path, advantage="rloo").plan()
    assert len(plans_in(tmp_path)) == 2
    assert not np.array_equal(first.decisions.advantages, other.decisions.advantages, equal_nan=True)
    write_trajectories(rollouts(shift=0.5), tmp_path)
    again = batches(tmp_path).plan()
    assert np.nanmax(again.decisions.rewards - first.decisions.rewards) == 0.5
    for step in range(6):  # plans of what is no more go with the time
        batches(tmp_path, training_step=step).plan()
    assert len(plans_in(tmp_path)) == 4
    assert of_first not in plans_in(tmp_path)
    assert all(
        has_own_name(path.name) for path in plans_in(tmp_path)
    )  # a conversion of the folder takes none for a dump


def test_a_torn_file_and_one_that_cannot_be_written_do_no_harm(dataset: Path):
    for path in plans_in(dataset):
        path.unlink()
    made = batches(dataset).plan()
    (path,) = plans_in(dataset)
    content = path.read_bytes()
    for torn in (b"", content[:100], content[: len(content) // 2], b"{}\n" + content):
        path.write_bytes(torn)
        check_equal(batches(dataset).plan(), made)
        assert path.read_bytes() == content
    path.unlink()
    path.mkdir()  # nothing can be written there
    check_equal(batches(dataset).plan(), made)
    path.rmdir()


def test_functions_of_a_user_and_small_datasets_leave_nothing(tmp_path: Path, dataset: Path):
    before = plans_in(dataset)
    batches(dataset, advantage=lambda rewards: [0.0 for _ in rewards]).plan()
    batches(dataset, advantage=OverGroups(lambda groups: [[0.0 for _ in each] for each in groups])).plan()
    batches(dataset, credit=reward_function(lambda one: float(len(one.turns)))).plan()
    assert plans_in(dataset) == before
    write_trajectories([talk("r-0", 2, reward=1.0)], tmp_path)
    batches(tmp_path).plan()
    assert plans_in(tmp_path) == []
