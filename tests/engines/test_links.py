"""Linked traces have the smallest of them as representative, in whatever order the edges come, and files say so."""

import tempfile

from hypothesis import given
from hypothesis import strategies as st

from art_otel.engines.route import Links, place
from art_otel.engines.shuffle import hash_of

SLOTS = 7
traces = st.integers(1, 30).map(lambda number: number.to_bytes(16))
pieces = st.lists(st.lists(st.tuples(traces, traces), max_size=12), max_size=4)


def smallest(edges: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The representatives, by going over all edges until nothing changes."""
    found = {trace: trace for edge in edges for trace in edge}
    changes = True
    while changes:
        changes = False
        for first, second in edges:
            low = min(found[first], found[second])
            changes |= found[first] != low or found[second] != low
            found[first] = found[second] = low
    return found


@given(pieces)
def test_the_smallest_trace_stands_for_all_that_are_linked(pieces):
    expected = smallest([edge for piece in pieces for edge in piece])
    links = Links([b"".join(first + second for first, second in piece) for piece in pieces])
    assert len(links) == len(expected)
    assert dict(links.linked()) == {trace: first for trace, first in expected.items() if trace != first}


@given(pieces, st.sets(st.integers(0, SLOTS - 1)))
def test_every_slot_knows_who_stands_there_or_comes(pieces, slots):
    expected = smallest([edge for piece in pieces for edge in piece])
    linked = {trace.hex(): first.hex() for trace, first in expected.items() if trace != first}
    with tempfile.TemporaryDirectory() as folder:
        edges = [b"".join(first + second for first, second in piece) for piece in pieces]
        placement, leaving = place(edges, SLOTS, folder)
        assert placement.representatives(slots) == {
            trace: first for trace, first in linked.items() if {slot(trace), slot(first)} & slots
        }
        assert placement.leaving(slots) == {
            trace: slot(first) for trace, first in linked.items() if slot(trace) in slots and slot(trace) != slot(first)
        }
    assert leaving == sorted({slot(trace) for trace, first in linked.items() if slot(trace) != slot(first)})


def slot(trace: str) -> int:
    return hash_of(trace) % SLOTS
