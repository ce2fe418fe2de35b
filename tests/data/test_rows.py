"""Rows: batches hold the stream in its order, each sequence once, and no row more than fits."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from art_otel.data.arranging import packed, padded


@given(st.lists(st.text(max_size=5)), st.integers(1, 4))
def test_padded_rows_hold_one_each(sequences, size):
    batches = list(padded(([one] for one in sequences), size))
    assert [row for batch in batches for row in batch] == [[one] for one in sequences]
    assert all(len(batch) == size for batch in batches[:-1])


@given(st.lists(st.text(max_size=5)), st.integers(1, 4), st.integers(5, 9))
def test_packed_rows_hold_what_fits(sequences, size, width):
    batches = list(packed(([one] for one in sequences), size, width))
    rest = iter(sequences)
    for batch in batches:
        assert 0 < len(batch) <= size
        assert all(row and sum(map(len, row)) <= width for row in batch)
        held = [one for row in batch for one in row]
        assert sorted(held) == sorted(next(rest) for _ in held)  # a stretch of the stream
    assert next(rest, None) is None
    for batch, after in pairwise(batches):
        first = len(after[0][0])
        assert len(batch) == size
        assert all(sum(map(len, row)) + first > width for row in batch)  # it was full


def test_a_short_sequence_fills_an_earlier_row():
    assert list(packed([["aaa"], ["bbb"], ["c"]], 2, 4)) == [[["aaa", "c"], ["bbb"]]]


@given(st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=4)), st.integers(1, 4), st.integers(5, 9))
def test_no_unit_is_in_two_batches(units, size, width):
    for batches in (list(padded(iter(units), size)), list(packed(iter(units), size, width))):
        rest = iter(units)
        for batch in batches:
            held = sorted(one for row in batch for one in row)
            whole = [next(rest)]
            while sum(map(len, whole)) < len(held):
                whole.append(next(rest))
            assert held == sorted(one for unit in whole for one in unit)
            assert len(batch) <= size or len(whole) == 1
        assert next(rest, None) is None
