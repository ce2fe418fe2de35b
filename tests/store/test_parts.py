"""Reading a part of each trajectory: the rest is None, and what is read is what was written."""

import tempfile
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from art_otel.errors import StoreError
from art_otel.store import read_row_group, read_trajectories, row_groups, write_trajectories
from art_otel.store.read import read_keys
from art_otel.store.write import FileLimits
from art_otel.testing import trajectories
from art_otel.trajectories import Trajectory, with_turns


@pytest.mark.long
@settings(deadline=None)
@given(trajectory=trajectories(max_calls=5), messages=st.booleans(), tokens=st.booleans())
def test_what_is_not_wanted_is_none_and_the_rest_equal(trajectory, messages, tokens, tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "one.parquet"
    write_trajectories([trajectory], path)
    (read,) = read_trajectories(path, messages=messages, tokens=tokens)
    of_call = ({} if messages else {"prompt_node": None}) | ({} if tokens else {"prompt_token_node": None})
    of_turn = ({} if messages else {"message_node": None}) | ({} if tokens else {"token_node": None})
    expected = replace(trajectory, calls=tuple(structs.replace(call, **of_call) for call in trajectory.calls))
    assert read == with_turns(expected, [structs.replace(turn, **of_turn) for turn in trajectory.turns])


@pytest.mark.long
@settings(deadline=None)  # the first writing loads pyarrow
@given(st.lists(trajectories(max_calls=2), max_size=5, unique_by=lambda one: one.order), st.integers(1, 3))
def test_row_groups_together_are_all_trajectories(written, rows):
    with tempfile.TemporaryDirectory() as folder:
        write_trajectories(written, folder, limits=FileLimits(group_rows=rows, part_rows=2 * rows))
        groups = row_groups(folder)
        read = [list(read_row_group(group)) for group in groups]
        assert [len(part) for part in read] == [group.rows for group in groups]
        assert [one for part in read for one in part] == sorted(written, key=lambda one: one.order)


@pytest.mark.long
@settings(deadline=None)
@given(st.lists(trajectories(max_calls=1), max_size=5), st.integers(1, 3))
def test_keys_are_those_of_the_trajectories(written, rows):
    with tempfile.TemporaryDirectory() as folder:
        write_trajectories(written, folder, limits=FileLimits(group_rows=rows, part_rows=2 * rows))
        for group in row_groups(folder):
            (keys,) = read_keys([group])
            assert keys == [one.order for one in read_row_group(group)]


def test_keys_of_a_file_that_is_another_one_by_now_are_refused(tmp_path):
    found = [Trajectory(rollout_id=f"r-{number}", trace_id="") for number in range(3)]
    write_trajectories(found, tmp_path, limits=FileLimits(group_rows=2))
    groups = row_groups(tmp_path)
    write_trajectories(found[:1], tmp_path)
    for group in groups:
        with pytest.raises(StoreError, match=r"was rewritten|cannot be read"):
            list(read_keys([group]))
