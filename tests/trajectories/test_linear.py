"""No step is worse than n log n in the calls of a rollout, whatever ids are missing or repeated: operations counted.

In the flattened shapes n is the messages of a prompt, or the calls with prompts of many attributes.
"""

import gc
from itertools import pairwise

import pytest

from art_otel.conventions import attribute_names
from art_otel.trajectories import SpanGroup, build_trajectories
from tests.operations import operations
from tests.trajectories.many_calls import SHAPES

MOST = 4.5
"""How many times the work four times the calls may be; n log n is 4.7 times from 4 to 16, and 4.3 from 4,000 on."""


def count(shape: str, calls: int) -> int:
    """What it takes to build a rollout of so many calls, none of whose texts and names was read before."""
    group = SpanGroup(spans=SHAPES[shape](calls))
    attribute_names._SPLIT_NAMES.clear()
    gc.collect()
    return operations(build_trajectories, group)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_calls_are_four_times_the_work(shape):
    count(shape, 10)  # what is made when it is first used
    small, large = count(shape, 250), count(shape, 1_000)
    assert large <= MOST * small


@pytest.mark.flood
@pytest.mark.parametrize("shape", SHAPES)
def test_sixteen_thousand_calls_are_sixteen_times_the_work_of_a_thousand(shape):
    counts = [count(shape, calls) for calls in (10, 1_000, 4_000, 16_000)]
    assert all(large <= MOST * small for small, large in pairwise(counts[1:]))
