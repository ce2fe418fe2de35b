"""Which parts are read: those that may have what is wanted, each when it is its turn."""

from dataclasses import replace

import pytest

import art_otel
from art_otel.errors import StoreError, UsageError
from art_otel.store import FileLimits, read_trajectories, row_groups, write_trajectories
from tests.store.test_files import rollouts

ONE = FileLimits(part_rows=1)


@pytest.fixture
def dataset(tmp_path):
    """Four rollouts in a part each: steps 0, 1, 2 and none; the last two are of no split."""
    written = [
        replace(one, training_step=step if step < 3 else None, split="train" if step < 2 else None)
        for step, one in enumerate(rollouts(4))
    ]
    write_trajectories(written, tmp_path, limits=ONE)
    return tmp_path, written


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, [0, 1, 2, 3]),
        ({"split": "train"}, [0, 1]),
        ({"split": ["train", None]}, [0, 1, 2, 3]),
        ({"training_step": 1}, [1]),
        ({"training_step": range(1, 9)}, [1, 2]),
        ({"training_step": [None]}, [3]),
        ({"split": [None], "training_step": [0, 2]}, [2]),
        ({"split": "test"}, []),
    ],
)
def test_what_is_wanted_and_nothing_else_is_read(dataset, options, numbers):
    folder, written = dataset
    assert list(read_trajectories(folder, **options)) == [written[number] for number in numbers]
    made = art_otel.batches(folder, allow_incomplete=True, status=None, advantage=None, **options)
    assert [one.rollout_id for one, _ in made.trajectories()] == [written[number].rollout_id for number in numbers]


def test_a_part_is_opened_when_it_is_its_turn_and_only_if_it_may_have_something(dataset):
    folder, written = dataset
    last = sorted(folder.glob("part-*"))[1]
    last.write_bytes(b"x" * last.stat().st_size)
    assert len(row_groups(folder)) == 4
    assert list(read_trajectories(folder, training_step=2)) == [written[2]]
    made = art_otel.batches(folder, allow_incomplete=True, status=None, advantage=None, training_step=0)
    assert [one for one, _ in made.trajectories()] == [written[0]]
    reading = read_trajectories(folder)
    assert next(reading) == written[0]
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        next(reading)


def test_what_is_no_split_and_no_step():
    for options in ({"split": 5}, {"training_step": "1"}, {"training_step": [True]}):
        with pytest.raises(UsageError, match="give one value or several"):
            read_trajectories("anywhere", **options)
