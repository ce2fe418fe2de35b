"""Lists spread over attribute names, and prompts that go on with what was read before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions.attribute_names import MAX_NAME
from art_otel.conventions.attributes import AttributeReader, unflatten
from tests.conventions.builders import call
from tests.gaps import unread


def read(attributes, prefix="p"):
    reader = AttributeReader(attributes)
    return unflatten(reader, prefix), unread(reader)


def test_lists_and_objects_are_put_together():
    attributes = {"p.1.b": 2, "p.0.a.1": "y", "p.0.a.0": "x", "p.1.c.k": None, "p.2": "leaf", "other.0": 1, "p": 0}
    assert read(attributes) == ([{"a": ["x", "y"]}, {"b": 2, "c": {"k": None}}, "leaf"], ())
    assert read(attributes, "other") == ([1], ())


@pytest.mark.parametrize("names", [["p.1.a"], ["p.0.a", "p.2.a"], ["p.00.a"], ["p.x.a"], ["p.\u0660.a"], ["p."]])
def test_a_list_with_a_hole_is_unknown(names):
    assert read(dict.fromkeys(names, 1)) == (None, ("p",))


def test_no_list_is_not_cut():
    assert read({"q.0": 1, "p0.0": 1, "p": [1]}) == (None, ())


def test_what_stands_beside_the_entries_is_none_of_them():
    """As `gen_ai.prompt.prompt_filter_results`, which Azure's answers have."""
    assert read({"p.filter": "{}", "p.0.a": 1}) == ([{"a": 1}], ())


def test_a_name_that_is_a_value_and_a_prefix_is_what_it_was_first():
    assert read({"p.0.a": 1, "p.0.a.b": 2}) == ([{"a": 1}], ())
    assert read({"p.0.a.b": 2, "p.0.a": 1}) == ([{"a": {"b": 2}}], ())
    assert read({"p.0": 1, "p.0.a": 2}) == ([1], ())


def test_structured_values_stay_what_they_are():
    recorded = {"p.0.a": {"k": {"0": "x"}}, "p.0.a.c": 2}
    assert read(recorded) == ([{"a": {"k": ["x"]}}], ())
    assert recorded["p.0.a"] == {"k": {"0": "x"}}


@pytest.mark.parametrize("name", ["p.0" + ".a" * 5_000, "p" + ".0" * 5_000, "p.0." + "a" * MAX_NAME])
def test_long_names(name):
    found, cut = read({name: 1})
    assert len(found) == 1
    assert not cut
    assert read({name: 1}) == (found, cut)


STEPS = st.sampled_from(["0", "1", "2", "a", "b"])
NAMES = st.lists(STEPS, min_size=1, max_size=4).map(lambda steps: ".".join(["p", *steps]))


@given(st.dictionaries(NAMES, st.integers(), max_size=8))
def test_every_value_of_a_whole_list_is_in_it(attributes):
    found, _ = read(attributes)
    if found is not None:
        listed = {name: value for name, value in attributes.items() if name[2].isdigit()}
        assert set(leaves(found)) <= set(listed.values())
        paths = list(listed)
        if not any(one != other and other.startswith(f"{one}.") for one in paths for other in paths):
            assert sorted(leaves(found)) == sorted(listed.values())


def leaves(value):
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


WORDS = st.sampled_from(["q", "a", '[{"type": "text", "text": "x"}]', ""])
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"])},
        optional={
            "content": WORDS,
            "tool_call_id": WORDS,
            "tool_calls.0.name": WORDS,
            "tool_calls.0.arguments": WORDS | st.sampled_from([1, True, 1.0]),
        },
    ),
    max_size=4,
)


def asked(entries):
    return {f"gen_ai.prompt.{at}.{field}": value for at, one in enumerate(entries) for field, value in one.items()}


def test_equal_values_that_are_written_otherwise():
    def arguments(value):
        entry = {"role": "assistant", "tool_calls.0.name": "f", "tool_calls.0.arguments": value}
        return call(asked([entry])).input_messages[0].tool_calls[0].arguments

    assert [arguments(value) for value in (1, True, 1.0, 1)] == ["1", "true", "1.0", "1"]


def test_an_entry_that_says_more_than_before_is_read_anew():
    first = [{"role": "user", "content": "grows"}, {"role": "assistant", "content": "c"}]
    more = [first[0], {**first[1], "tool_calls.0.name": "f", "tool_calls.0.arguments": "{}"}]
    assert call(asked(first)).input_messages[1].tool_calls == ()
    assert [one.name for one in call(asked(more)).input_messages[1].tool_calls] == ["f"]
    assert call(asked([*more, first[0]])).input_messages[:2] == call(asked(more)).input_messages
