"""Ids that a process guessed: they count only where nothing else tells to which rollout a span belongs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions import role_of
from art_otel.spans import Span, build_tree
from art_otel.trajectories.rollouts import assign_rollouts
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span

ID = "art.rollout.id"
GUESS = {ID: "guess", "art.rollout.provisional": True}


def service(number, parent, **fields):
    """What a service recorded of a request: its span, which it made a rollout, and a call below it."""
    attributes = GUESS | fields.pop("attributes", {})
    below = {ID: attributes[ID]}
    return [
        make_span(number, parent, name="POST /", attributes=attributes, **fields),
        chat_span(number + 1, number, ["q"], "a", attributes=below, **fields),
    ]


def calls(trajectories):
    return {one.rollout_id: [int(call.span_id, 16) for call in one.calls] for one in trajectories}


@pytest.mark.parametrize("mark", [True, "true"])
def test_it_gives_way_to_the_rollout_around_it(tmp_path, mark):
    root = make_span(1, name="rollout x", attributes={ID: "r", "art.reward": 0.5})
    marked = service(3, 2, attributes={"art.rollout.provisional": mark})
    (found,), _ = convert_spans(tmp_path, root, make_span(2, 1, name="POST"), *marked)
    assert (found.rollout_id, found.reward, len(found.calls), found.complete) == ("r", 0.5, 1, True)


def test_spans_of_the_service_stand_for_none_that_the_certificate_counted(tmp_path):
    root = make_span(1, name="rollout x", attributes={ID: "r", "art.rollout.spans.started": 3})
    counted = [chat_span(number, 1, ["q"], f"a{number}", attributes={ID: "r"}) for number in (7, 8)]
    spans = [root, make_span(2, 1, name="POST", attributes={ID: "r"}), *service(3, 2)]
    (whole,), _ = convert_spans(tmp_path / "whole", *spans, *counted)
    (lost,), _ = convert_spans(tmp_path / "lost", *spans, counted[0])
    assert whole.complete
    assert lost.incomplete_reasons == {"spans missing": 1}


def test_without_its_parent_it_is_a_rollout(tmp_path):
    (found,), _ = convert_spans(tmp_path, *service(3, 2))
    assert (found.rollout_id, found.name, len(found.calls), found.complete) == ("guess", "POST /", 1, True)
    assert found.metadata == {}


def test_an_id_that_was_not_guessed_stays(tmp_path):
    root = make_span(1, name="rollout x", attributes={ID: "r"})
    for number, said in enumerate(({"art.rollout.provisional": False}, {"art.rollout.provisional": "no"})):
        found, _ = convert_spans(tmp_path / str(number), root, *service(3, 1, attributes=said))
        assert calls(found) == {"r": [], "guess": [4]}


def test_it_gives_way_to_the_attempt_around_it(tmp_path):
    attempts = [make_span(at, trace=at, name="rollout x", attributes={ID: "r"}) for at in (1, 2)]
    found, _ = convert_spans(tmp_path, *attempts, *service(3, 1, trace=1), *service(5, 2, trace=2))
    assert [[call.span_id[-1] for call in one.calls] for one in found] == [["4"], ["6"]]


def test_it_gives_way_to_the_root_of_the_trace_and_to_a_glob(tmp_path):
    spans = [make_span(1, name="app"), make_span(2, 1, name="episode 1"), *service(3, 2), chat_span(5, 1, ["s"], "t")]
    found, _ = convert_spans(tmp_path / "root", *spans)
    assert calls(found) == {f"{1:032x}": [4, 5]}
    found, _ = convert_spans(tmp_path / "glob", *spans, rollout_spans=["episode *"])
    assert calls(found) == {f"{1:032x}-{2:016x}": [4]}
    found, _ = convert_spans(tmp_path / "own", *spans, rollout_spans=["POST /"])
    assert calls(found) == {f"{1:032x}-{3:016x}": [4]}
    found, _ = convert_spans(tmp_path / "other", *spans, rollout_spans=["episode 2"])
    assert calls(found) == {"guess": [4]}


def test_beside_a_rollout_it_stays(tmp_path):
    spans = [make_span(1, name="app"), make_span(2, 1, name="rollout x", attributes={ID: "r"}), *service(3, 1)]
    found, _ = convert_spans(tmp_path, *spans)
    assert calls(found) == {"r": [], "guess": [4]}


def test_where_its_parent_is_lost_it_gives_way_to_the_rollout_that_was_running(tmp_path):
    root = make_span(1, name="rollout x", attributes={ID: "r"})
    (found,), _ = convert_spans(tmp_path / "while", root, *service(3, 2))
    assert (found.rollout_id, len(found.calls), found.incomplete_reasons) == ("r", 1, {"missing parent": 1})
    over = make_span(1, name="rollout x", attributes={ID: "r"}, endTimeUnixNano="1000002")
    found, _ = convert_spans(tmp_path / "after", over, *service(3, 2))
    assert calls(found) == {"r": [], "guess": [4]}


def test_a_rollout_in_it_is_nested_in_what_it_gives_way_to(tmp_path):
    inner = [
        make_span(5, 3, name="rollout inner", attributes={ID: "inner"}),
        chat_span(6, 5, ["a"], "b", attributes={ID: "inner"}),
    ]
    found, _ = convert_spans(tmp_path / "alone", *service(3, 2), *inner)
    assert {one.rollout_id: one.parent_rollout_id for one in found} == {"inner": "guess", "guess": None}
    root = make_span(2, name="rollout x", attributes={ID: "r"})
    found, _ = convert_spans(tmp_path / "asked", root, *service(3, 2), *inner)
    assert {one.rollout_id: one.parent_rollout_id for one in found} == {"inner": "r", "r": None}
    assert all(one.complete for one in found)


def test_spans_of_its_id_elsewhere_go_with_it(tmp_path):
    root = make_span(1, name="rollout x", attributes={ID: "r"})
    elsewhere = [
        chat_span(7, 9, ["a"], "b", attributes={ID: "guess"}),
        make_span(8, trace=2, name="reward x", attributes={ID: "guess", "art.reward": 1.0}),
    ]
    (found,), _ = convert_spans(tmp_path / "asked", root, *service(3, 1), *elsewhere)
    assert (found.rollout_id, len(found.calls), found.reward) == ("r", 2, 1.0)
    (found,), _ = convert_spans(tmp_path / "alone", *service(3, 1), *elsewhere)
    assert (found.rollout_id, len(found.calls), found.reward) == ("guess", 2, 1.0)


TRACE = f"{1:032x}"
SPANS = st.builds(
    Span,
    trace_id=st.just(TRACE),
    span_id=st.integers(1, 9).map("{:016x}".format),
    parent_span_id=st.none() | st.integers(1, 9).map("{:016x}".format),
    name=st.sampled_from(["POST", "rollout x"]),
    kind=st.just("client"),
    start_ns=st.integers(1, 9),
    end_ns=st.integers(9, 20),
    attributes=st.fixed_dictionaries(
        {},
        optional={
            ID: st.sampled_from(["r", "s", "guess", "other guess"]),
            "art.rollout.provisional": st.booleans(),
            "gen_ai.operation.name": st.just("chat"),
        },
    ),
)


@given(st.lists(SPANS, max_size=9))
def test_below_a_rollout_that_the_trace_tells_no_guessed_id_counts(spans):
    tree = build_tree(spans)
    guessed = [span for span in tree.spans.values() if span.attributes.get("art.rollout.provisional")]
    guesses = {span.attributes[ID] for span in guessed if ID in span.attributes}
    roles = {key: role_of(span) for key, span in tree.spans.items()}
    assignment = assign_rollouts(tree, roles)
    for key, span in tree.spans.items():
        above = tree.parents.get(key)
        outer = None if above is None else assignment.of[above]
        way = [span, *tree.ancestors(span)]
        from_outside = way[-1].parent_span_id is not None or roles[way[-1].key] == "inference"
        unmarked = any(one.attributes.get(ID) in guesses and one not in guessed for one in way[1:])
        if outer is not None and not from_outside and not unmarked:
            assert span.attributes.get(ID) not in guesses or assignment.of[key] is outer
