"""Lists spread over attribute names, and prompts that go on with what was read before."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions.attributes import MAX_NAME, AttributeNames, AttributeReader, flat_list, names_of, unflatten
from art_otel.conventions.dialects import openllmetry
from art_otel.conventions.prefix_cache import OTHER, PrefixCache, size_of
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


@given(st.dictionaries(NAMES, st.integers(), max_size=8))
def test_a_flat_list_is_the_list_with_its_values_entry_by_entry(attributes):
    found, _ = read(attributes)
    flat = flat_list(names_of(attributes), "p")
    if flat is None:
        assert not found or any(not isinstance(entry, dict) for entry in found)
        return
    assert flat.entries(attributes, 0) == found
    values = flat.values(attributes)
    assert [attributes[name] for name, _ in values] == [value for _, value in values]
    for end, count in flat.counts.items():
        assert [value for _, value in values[:end]] == list(leaves(found[:count]))
        assert flat.entries(attributes, count) == found[count:]


def leaves(value):
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


def test_names_are_looked_at_once():
    names = names_of(["p.0.a", "q"])
    assert names.lists is names_of(["p.0.a", "q"]).lists
    assert AttributeNames(("q",)).lists == {}


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


@given(st.lists(ENTRIES, max_size=3), st.data())
def test_what_was_read_before_changes_nothing(prompts, data):
    before = openllmetry._CACHE
    several = [list(chain.from_iterable(data.draw(st.permutations(prompts)))) for _ in range(3)]
    try:
        shared = [call(asked(entries)) for entries in several for entries in (entries[:2], entries)]
        alone = []
        for entries in several:
            for part in (entries[:2], entries):
                openllmetry._CACHE = PrefixCache()
                alone.append(call(asked(part)))
    finally:
        openllmetry._CACHE = before
    assert shared == alone


def test_equal_values_that_are_written_otherwise():
    def arguments(value):
        entry = {"role": "assistant", "tool_calls.0.name": "f", "tool_calls.0.arguments": value}
        return call(asked([entry])).input_messages[0].tool_calls[0].arguments

    assert [arguments(value) for value in (1, True, 1.0, 1)] == ["1", "true", "1.0", "1"]


def test_a_prompt_shares_the_messages_of_the_one_before():
    first = [{"role": "user", "content": "sharing"}, {"role": "assistant", "content": "is cheap"}]
    one, other = (call(asked(entries)).input_messages for entries in (first, [*first, *first]))
    assert [a is b for a, b in zip(one, other, strict=False)] == [True, True]
    assert one + one == other


def test_an_entry_that_says_more_than_before_is_read_anew():
    first = [{"role": "user", "content": "grows"}, {"role": "assistant", "content": "c"}]
    more = [first[0], {**first[1], "tool_calls.0.name": "f", "tool_calls.0.arguments": "{}"}]
    assert call(asked(first)).input_messages[1].tool_calls == ()
    assert [one.name for one in call(asked(more)).input_messages[1].tool_calls] == ["f"]
    assert call(asked([*more, first[0]])).input_messages[:2] == call(asked(more)).input_messages


def test_long_prompts_are_not_remembered():
    known = PrefixCache()
    known.keep([{"role": "user"}], (), size=OTHER)
    assert known.find([{"role": "user"}]) is None
    assert size_of([{"a": "xx", "b": ["y"]}]) == 8
    assert size_of([{"a": 1}]) > OTHER > size_of("x" * (OTHER - 2))
