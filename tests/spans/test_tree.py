"""SpanTree: each span once, no cycles, orphans known, whatever the order of delivery."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from art_otel.spans import Event, Link, Resource, Scope, Span, build_tree
from art_otel.spans.copies import deduplicate

TRACE = "ab" * 16


def make(number: int, parent: int | None = None, *, start: int = 0, **fields) -> Span:
    defaults = {"name": f"s{number}", "start_ns": start or 100 + number, "end_ns": 10_000}
    parent_id = None if parent is None else f"{parent:016x}"
    return Span(trace_id=TRACE, span_id=f"{number:016x}", parent_span_id=parent_id, **(defaults | fields))


def key(number: int) -> tuple[str, str]:
    return (TRACE, f"{number:016x}")


def test_children_stand_below_their_parent_in_order_of_start():
    tree = build_tree([make(3, 1, start=5), make(2, 1, start=9), make(1, start=1)])
    assert tree.children == {key(1): (key(3), key(2))}
    assert [span.name for span in tree.ancestors(tree.spans[key(2)])] == ["s1"]
    assert not tree.orphans


def test_the_richest_of_several_deliveries_stays():
    started = make(1, end_ns=None)
    ended = make(1, attributes={"art.reward": 1.0})
    for order in ([started, ended, ended], [ended, started, ended]):
        tree = build_tree(order)
        assert tree.spans[key(1)] == ended
        assert tree.deliveries[key(1)] == 3


def test_what_a_span_dropped_is_in_the_record_of_its_start():
    started = [make(1, end_ns=None, attributes={"a": 1, "b": number}) for number in (1, 2)]
    whole = make(1, attributes={"b": 3})
    dropped = make(1, attributes={"b": 3}, dropped_attributes_count=1)
    for order in itertools.permutations([*started, dropped, dropped]):
        (found,) = build_tree(order).spans.values()
        assert (found.attributes, found.dropped_attributes_count) == ({"a": 1, "b": 3}, 1)
    assert build_tree([*started, whole]).spans[key(1)] == whole


WHOLE = make(
    1,
    start=1_234,
    kind="client",
    attributes={"a": 1, "b": "2"},
    events=(Event(name="e", time_ns=5, attributes={"k": 1}),),
    links=(Link(trace_id=TRACE, span_id="9" * 16),),
    status="error",
    status_message="boom",
    scope=Scope(name="lib"),
    resource=Resource(attributes={"service.name": "s", "art.group.id": "g"}),
    dropped_attributes_count=2,
    dropped_events_count=1,
)


def only(copies) -> Span:
    (found,) = {repr(build_tree(order).spans) for order in itertools.permutations(copies)}
    tree = build_tree(copies)
    assert (repr(tree.spans), tree.deliveries[key(1)]) == (found, len(copies))
    return tree.spans[key(1)]


def test_copies_from_stores_that_keep_less_take_nothing_away():
    bare = make(1, start=1_000, attributes={"a": 1, "b": "2"})
    texts = make(1, start=1_000, attributes={"a": "1", "b": "2", "service.name": "s", "art.group.id": "g"})
    named = make(1, start=1_234, attributes={"a": 1, "b": "2"}, events=(Event(name="e", time_ns=5),))
    started = make(1, start=1_234, end_ns=None, kind="client", attributes={"a": 1, "b": "2"})
    for others in ([bare], [texts], [named], [started], [bare, texts, bare], [bare, named, texts, started]):
        assert only([WHOLE, *others]) == WHOLE


def test_what_the_richest_copy_lacks_is_another_s():
    richest = make(1, start=1_234, attributes={"a": 1, "b": "2", "of the store": "x"})
    found = only([WHOLE, richest, make(1, resource=Resource(attributes={"service.name": "other", "host": "h"}))])
    assert found.attributes == richest.attributes
    assert found.resource.attributes == {"service.name": "s", "art.group.id": "g", "host": "h"}
    for name in ("kind", "events", "links", "status", "status_message", "scope", "dropped_attributes_count"):
        assert getattr(found, name) == getattr(WHOLE, name)


def test_events_are_one_copy_s_so_that_no_reward_is_told_twice():
    event = Event(name="gen_ai.evaluation.result", time_ns=5, attributes={"gen_ai.evaluation.score.value": 1.0})
    copies = [make(1, events=(Event(name=event.name, time_ns=time),)) for time in (5, 6)]
    richest = make(1, attributes={"a": 1})
    assert only([make(1, events=(event,)), *copies, richest]).events == (event,)


def edition(number: int, **fields) -> Span:
    said = {"art.rollout.edition": number, **fields.pop("attributes", {})}
    return make(1, attributes=said, **fields)


def test_of_editions_all_counts_and_the_later_where_several_say_it():
    events = [Event(name="e", time_ns=time, attributes={"k": time}) for time in (5_001, 5_001, 9_001)]
    began = edition(1, start=7, end_ns=None, attributes={"group": "g", "b": 1})
    failed = edition(2, start=8, attributes={"b": 2, "c": 1}, events=(*events[:2],), status="error")
    last = edition(3, start=9, end_ns=20_000, attributes={"b": 3}, events=(events[2],), status="ok")
    quiet = edition(4, start=9, end_ns=30_000)
    rounded = tuple(Event(name=one.name, time_ns=5_000, attributes={"k": "5001"}) for one in events[:2])
    stored = edition(2, start=8, attributes={"art.rollout.edition": "2", "b": "2"}, events=rounded)
    for others in ([], [stored], [last, stored]):
        found = only([began, failed, last, quiet, *others])
        assert found.attributes == {"art.rollout.edition": 4, "group": "g", "b": 3, "c": 1}
        assert found.events == tuple(events)
        assert (found.start_ns, found.end_ns, found.status) == (7, 20_000, "ok")
    assert only([began, quiet, edition(5, end_ns=25_000)]).end_ns == 30_000


def test_an_end_that_is_said_again_to_another_gateway_is_one():
    def said(number: int, reward: float) -> Span:
        names = ("reward", "style")
        events = [Event(name="e", time_ns=number * 1_000, attributes={"n": name, "v": reward}) for name in names]
        return edition(number, events=tuple(events), status="ok")

    one, again, other, back = said(1, 1.0), said(2, 1.0), said(3, 0.0), said(4, 1.0)
    assert only([one, again]).events == one.events
    assert only([back, other, again, one]).events == (*one.events, *other.events, *back.events)


def test_numbers_that_are_equal_in_other_types_are_other_copies():
    assert only([make(1, attributes={"a": value}) for value in (1, 1.0, True)]).attributes["a"] == 1


def test_a_span_whose_parent_is_missing_is_an_orphan():
    tree = build_tree([make(2, 1)])
    assert tree.orphans == {key(2)}
    assert tree.parent(tree.spans[key(2)]) is None


def test_a_cycle_is_set_aside_and_what_hung_below_it_is_an_orphan():
    tree = build_tree([make(1, 2), make(2, 1), make(3, 1), make(4, 4), make(5)])
    assert [damage.span_id for damage in tree.cyclic] == [key(1)[1], key(2)[1], key(4)[1]]
    assert {damage.reason for damage in tree.cyclic} == {"cycle of parents"}
    assert set(tree.spans) == {key(3), key(5)}
    assert tree.orphans == {key(3)}


def test_a_chain_of_ten_thousand_spans_is_no_problem():
    chain = [make(1), *(make(number, number - 1) for number in range(2, 10_001))]
    random.Random(0).shuffle(chain)
    tree = build_tree(chain)
    assert sum(1 for _ in tree.ancestors(tree.spans[key(10_000)])) == 9_999


parents = st.lists(st.one_of(st.none(), st.integers(1, 12)), min_size=1, max_size=12)


@given(parents, st.randoms(use_true_random=False), st.integers(1, 3))
def test_order_and_repetition_change_nothing(parents, chance, copies):
    spans = [make(number, parent) for number, parent in enumerate(parents, start=1)]
    shuffled = spans * copies
    chance.shuffle(shuffled)
    tree, again = build_tree(spans), build_tree(shuffled)
    assert (tree.spans, tree.children, tree.orphans, tree.cyclic) == (
        again.spans,
        again.children,
        again.orphans,
        again.cyclic,
    )
    assert len(tree.spans) + len(tree.cyclic) == len(spans)
    for span in tree.spans.values():
        assert len(list(tree.ancestors(span))) < len(spans)


@given(parents, st.integers(1, 3))
def test_a_tree_leads_from_parents_to_children(parents, copies):
    spans = [make(number, parent) for number, parent in enumerate(parents, start=1)] * copies
    tree, unique = build_tree(spans), deduplicate(spans)
    assert unique.deliveries == tree.deliveries
    assert set(unique.deliveries.values()) == {copies}
    depths = tree.inherit(lambda _, above: 0 if above is None else above + 1)
    assert depths == {key: len(list(tree.ancestors(span))) for key, span in tree.spans.items()}
    for span in tree.spans.values():
        assert tree.parent(span) == tree.spans.get((TRACE, str(span.parent_span_id)))
    placed = list(tree.topological_order())
    assert sorted(placed) == sorted(tree.spans)
    assert all(placed.index(above) < placed.index(below) for below, above in tree.parents.items())


said = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))
times = st.lists(st.integers(1, 3).map(lambda number: number * 1_000), max_size=2)
editions = st.builds(
    lambda number, said, times, end: edition(
        number, attributes=said, events=tuple(Event(name="e", time_ns=time) for time in times), end_ns=end
    ),
    st.integers(0, 3),
    said,
    times,
    st.sampled_from([None, 10_000, 20_000]),
)


@given(st.lists(editions, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_and_repetition_of_editions_change_nothing(copies, chance):
    shuffled = [*copies, *chance.choices(copies, k=3)]
    chance.shuffle(shuffled)
    (found,) = build_tree(copies).spans.values()
    assert build_tree(shuffled).spans[key(1)] == found
    assert len(found.events) <= len({time.time_ns for copy in copies for time in copy.events}) * 2


HERE, THERE = (Resource(attributes={"service.instance.id": name}) for name in ("here", "there"))


def starts(tree) -> list[str]:
    return [span.name for span in sorted(tree.spans.values(), key=tree.order)]


def two_services(skew: int) -> list[Span]:
    """One service calls another twice, each time between calls of its own."""
    client = {"kind": "client", "resource": HERE}
    server = {"kind": "server", "resource": THERE}
    return [
        make(1, start=1_000, end_ns=9_000, resource=HERE),
        make(2, 1, start=1_100, end_ns=1_900, name="first", resource=HERE),
        make(3, 1, start=2_000, end_ns=3_000, name="request", **client),
        make(4, 3, start=2_100 + skew, end_ns=2_900 + skew, name="answer", **server),
        make(5, 4, start=2_200 + skew, end_ns=2_800 + skew, name="second", resource=THERE),
        make(6, 1, start=4_000, end_ns=5_000, name="third", resource=HERE),
    ]


def test_an_hour_of_skew_changes_no_order():
    expected = ["s1", "first", "request", "answer", "second", "third"]
    hour = 3_600 * 10**9
    for skew in (0, hour, -hour + 3_600 * 10**9 - 5_000, 50_000):
        assert starts(build_tree(two_services(skew))) == expected


def test_a_consumer_may_start_after_its_producer_ended():
    tree = build_tree(
        [
            make(1, start=1_000, end_ns=2_000, kind="producer", resource=HERE),
            make(2, 1, start=7_000, end_ns=8_000, kind="consumer", resource=THERE),
        ]
    )
    assert tree.starts[key(2)] == 7_000


def test_an_unended_child_of_another_clock_starts_inside_its_parent():
    tree = build_tree(
        [
            make(1, start=1_000, end_ns=2_000, kind="client", resource=HERE),
            make(2, 1, start=10, end_ns=None, kind="server", resource=THERE),
        ]
    )
    assert 1_000 <= tree.starts[key(2)] <= 2_000
