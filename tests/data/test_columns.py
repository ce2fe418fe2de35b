"""Columns of files are those of the trajectories that they hold: of generated ones, and of all recordings."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.data.columns import EVERY_PART, Coded, Columns, columns_of, join_columns
from art_otel.data.stored_columns import read_stored
from art_otel.store import read_trajectories, row_groups
from tests.conversions import RECORDINGS, convert_files
from tests.data.batch_options import laws
from tests.data.test_decisions import varied
from tests.data.token_rollouts import rollouts, stored
from tests.examples import examples


def check_equal(one: Columns, other: Columns) -> None:
    for field in fields(Columns):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, Coded):
            assert list(mine) == list(theirs), field.name
        else:
            assert mine.dtype == theirs.dtype, field.name
            np.testing.assert_array_equal(mine, theirs, field.name)


def of_files(folder: Path) -> Columns:
    groups = row_groups(folder)
    return read_stored(groups, [False] * len(groups), EVERY_PART)


@pytest.mark.long
@settings(laws, max_examples=examples(60))
@given(rollouts(storable=True), st.data())
def test_of_generated_trajectories(found, data):
    found = [data.draw(varied(one)) for one in found]
    with stored(found) as folder:
        whole = of_files(folder)
    check_equal(whole, columns_of(found, EVERY_PART))
    check_equal(
        whole,
        join_columns([columns_of(found[:2], EVERY_PART), columns_of(found[2:], EVERY_PART)]),
    )


def test_of_all_recordings(tmp_path: Path):
    found, _ = convert_files(tmp_path, *sorted(RECORDINGS.rglob("*.jsonl")))
    assert len(found) > 20
    check_equal(
        of_files(tmp_path),
        columns_of([*read_trajectories(tmp_path)], EVERY_PART),
    )
