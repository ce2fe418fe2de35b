"""What travels to a trainer is the same object there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.errors import StoreError
from art_otel.store import decode_trajectory, encode_trajectory
from art_otel.testing import trajectories
from art_otel.trajectories import Trajectory
from tests.trajectories.agents import agent_calls
from tests.trajectories.calls import lineage_of


@given(trajectories())
def test_any_arrives(trajectory):
    assert decode_trajectory(encode_trajectory(trajectory)) == trajectory


@given(agent_calls())
def test_what_the_lineage_took_apart_is_put_together(calls):
    trajectory = Trajectory(rollout_id="r", trace_id="ab" * 16, **lineage_of(calls))
    assert decode_trajectory(encode_trajectory(trajectory)) == trajectory


@given(trajectories(), st.data())
def test_what_is_no_trajectory_is_refused(trajectory, data):
    whole = encode_trajectory(trajectory)
    with pytest.raises(StoreError, match="not a valid trajectory"):
        decode_trajectory(whole[: data.draw(st.integers(0, len(whole) - 1))])
