"""Grouping: where row groups end."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from art_otel.store.grouping import FileLimits, RowKeys, plan_groups

LIMITS = FileLimits(group_rows=4, group_bytes=100)


def groups(weights: list[int]) -> list[list[int]]:
    """The weights of the rows of each group."""
    rows = [RowKeys((f"{place:04d}", 0, ""), weight, "batch", place) for place, weight in enumerate(weights)]
    plans = list(plan_groups(rows, LIMITS))
    ends = [sum(plan.rows for plan in plans[:number]) for number in range(len(plans) + 1)]
    assert [(plan.slices[0].first, plan.slices[0].count) for plan in plans] == [
        (start, end - start) for start, end in pairwise(ends)
    ]
    assert [plan.weight for plan in plans] == [sum(weights[start:end]) for start, end in pairwise(ends)]
    return [weights[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.integers(1, 120), max_size=40))
def test_every_row_is_in_one_group_within_the_limits(weights):
    found = groups(weights)
    assert [weight for group in found for weight in group] == weights
    assert all(1 <= len(group) <= 4 and (len(group) == 1 or sum(group) <= 100) for group in found)


@given(st.lists(st.integers(1, 120), min_size=1, max_size=40))
def test_all_but_the_last_two_are_as_full_as_can_be_and_those_share_the_rest(weights):
    found = groups(weights)
    for group, after in list(pairwise(found))[:-2]:
        assert len(group) == 4 or sum(group) + after[0] > 100
    if len(found) > 1:
        last = found[-2] + found[-1]
        allowed = [cut for cut in range(1, len(last)) if max(cut, len(last) - cut) <= 4]
        heavier = min(max(sum(last[:cut]), sum(last[cut:])) for cut in allowed)
        assert max(sum(found[-2]), sum(found[-1])) == heavier


def test_what_fits_into_one_group_is_not_divided():
    assert groups([25, 25, 25, 25]) == [[25, 25, 25, 25]]
    assert groups([25, 25, 25, 25, 25]) == [[25, 25, 25], [25, 25]]
    assert groups([]) == []
