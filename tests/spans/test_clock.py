"""Clocks that differ between services, what ran at a moment, and spans after their parents."""

from hypothesis import given
from hypothesis import strategies as st

from art_otel.spans import Resource, Span, build_tree
from art_otel.spans.tree import topological_order
from art_otel.trajectories.surroundings import IntervalIndex

MOMENTS = st.integers(0, 20)
TIMES = st.lists(st.tuples(MOMENTS, st.none() | MOMENTS).filter(lambda span: span[1] is None or span[0] <= span[1]))


@given(TIMES, st.integers(-1, 22))
def test_what_runs_alone_is_what_no_other_runs_beside(times, moment):
    ran = [place for place, (first, last) in enumerate(times) if first <= moment and (last is None or moment <= last)]
    running = IntervalIndex([(first, last, place) for place, (first, last) in enumerate(times)])
    assert running.only_at(moment) == (ran[0] if len(ran) == 1 else None)


def test_nothing_runs_among_nothing():
    assert IntervalIndex([]).only_at(0) is None


@given(st.lists(st.integers(0, 30), max_size=12), st.randoms(use_true_random=False))
def test_every_key_comes_once_and_after_its_parent(above, chance):
    keys = [("t", str(number)) for number in range(len(above))]
    parents = {key: keys[up % number] for number, (key, up) in enumerate(zip(keys, above, strict=True)) if number}
    shuffled = keys.copy()
    chance.shuffle(shuffled)
    ordered = list(topological_order(shuffled, parents))
    assert sorted(ordered) == sorted(keys)
    assert all(ordered.index(parent) < ordered.index(key) for key, parent in parents.items())


def test_keys_keep_their_order_where_parents_allow():
    keys = [("t", name) for name in "dcba"]
    assert list(topological_order(keys, {})) == keys
    assert list(topological_order(keys, {("t", "d"): ("t", "a")})) == [("t", name) for name in "adcb"]


SECOND = 10**9


def start_of(*services: tuple[str, float]) -> list[float]:
    """When calls of services began, in seconds after the start of the span above them, which takes three."""
    begin = 100 * SECOND
    spans = [Span(trace_id="1" * 32, span_id=f"{1:016x}", name="x", start_ns=begin, end_ns=begin + 3 * SECOND)]
    for number, (name, late) in enumerate(services, 2):
        place = {"trace_id": "1" * 32, "span_id": f"{number:016x}", "parent_span_id": f"{1:016x}"}
        start = begin + round(late * SECOND)
        resource = Resource(attributes={"service.name": name})
        times = {"start_ns": start, "end_ns": start + SECOND}
        spans.append(Span(**place, name="y", kind="server", resource=resource, **times))
    tree = build_tree(spans)
    return [(tree.starts[span.key] - begin) / SECOND for span in spans[1:]]


def test_each_service_has_a_clock_of_its_own():
    alone = start_of(("late", 49))
    assert start_of(("early", -0.1), ("late", 49)) == [1.0, *alone] == [1.0, 1.0]


def test_calls_of_one_service_keep_their_distances():
    assert start_of(("late", 49), ("late", 49.5)) == [1.0, 1.5]
