"""Order: windows hold every chunk once, shares every trajectory once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from art_otel.data.arranging import ShuffleOrder

ORDERS = st.builds(
    ShuffleOrder,
    seed=st.none() | st.integers(0, 2**40),
    epoch=st.integers(0, 9),
    shuffle_buffer=st.integers(1, 5),
)


@given(ORDERS, st.integers(0, 20))
def test_windows_hold_every_chunk_once(order, count):
    windows = order.windows(range(count))
    assert Counter(chunk for window in windows for chunk in window) == Counter(range(count))
    assert all(len(window) == order.shuffle_buffer for window in windows[:-1])
    assert windows == order.windows(range(count))


@given(st.integers(0, 50), st.integers(0, 20), st.integers(1, 5))
def test_shares_hold_every_number_once_and_are_equal(start, size, count):
    numbers = range(start, start + size)
    shares = [ShuffleOrder(worker=(index, count)).share(numbers) for index in range(count)]
    assert sorted(number for share in shares for number in share) == list(numbers)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(number % count == index for index, share in enumerate(shares) for number in share)


@given(ORDERS, st.lists(st.integers(), max_size=9), st.integers(0, 9))
def test_shuffling_keeps_what_it_shuffles(order, items, number):
    assert Counter(order.shuffled(items, number)) == Counter(items)
    assert order.shuffled(items, number) == order.shuffled(items, number)


def test_without_a_seed_nothing_is_shuffled():
    assert ShuffleOrder().shuffled("abc", 1) == ["a", "b", "c"]


def test_seeds_epochs_and_numbers_are_orders_of_their_own():
    orders = [ShuffleOrder(seed=seed, epoch=epoch).shuffled(range(50), number) for seed, epoch, number in SEVERAL]
    assert len(set(map(tuple, orders))) == len(SEVERAL)


SEVERAL = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**64, 0, 0)]
