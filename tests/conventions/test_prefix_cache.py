"""What was read before is found again, and what is found changes nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions.bodies import messages
from art_otel.conventions.prefix_cache import REMEMBERED_PREFIX_LENGTH as REMEMBERED_LENGTH
from art_otel.conventions.prefix_cache import REMEMBERED_PREFIXES as REMEMBERED
from art_otel.conventions.prefix_cache import PrefixCache


def told(found):
    return found and (found.length, found.value)


def test_a_text_goes_on_with_the_last_one_or_else_with_the_longest():
    known: PrefixCache[str, int] = PrefixCache(str.startswith)
    assert known.find("abc") is None
    for number, beginning in enumerate(["ab", "a", "abc"]):
        known.keep(beginning, number)
    assert told(known.find("abcd")) == (3, 2)
    assert told(known.find("abx")) == (2, 0)
    assert told(known.find("xabx", 1)) == (2, 0)
    known.keep("a", 3)
    assert told(known.find("abcd")) == (1, 3)
    assert known.find("xab") is None


def test_memory_has_an_end():
    known: PrefixCache[str, int] = PrefixCache(str.startswith)
    for number in range(2 * REMEMBERED):
        known.keep(f"{number:03}", number)
    assert [known.find(f"{number:03}") for number in (0, REMEMBERED - 1)] == [None, None]
    assert told(known.find(f"{REMEMBERED:03}")) == (3, REMEMBERED)
    known.keep("x" * (REMEMBERED_LENGTH + 1), 0)
    assert known.find("x" * (REMEMBERED_LENGTH + 1)) is None


@given(st.text(alphabet="ab", max_size=6), st.lists(st.text(alphabet="ab", max_size=4), max_size=12))
def test_what_is_found_is_a_beginning(text, beginnings):
    known: PrefixCache[str, str] = PrefixCache(str.startswith)
    for beginning in beginnings:
        known.keep(beginning, beginning)
    found = known.find(text)
    if found is None:
        assert not any(text.startswith(beginning) for beginning in beginnings[-REMEMBERED:])
    else:
        assert text.startswith(found.value)
        assert found.length == len(found.value)


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=2, max_size=40), st.integers(0, 3))
def test_a_long_text_that_goes_on_is_remembered_in_pieces(turns, start):
    turns = [turn * 9_000 for turn in turns]
    known: PrefixCache[str, int] = PrefixCache(str.startswith)
    text = "x" * start
    for number, turn in enumerate(turns):
        earlier = known.find(text + turn, start)
        assert told(earlier) == ((len(text) - start, number - 1) if number else None)
        text += turn
        known.keep(f"{text}]", number, start=start, end=len(text), earlier=earlier)
    assert known.find(f"y{text[1:]}") is None
    found = known.find(text, start)
    assert "".join(found.pieces) == text[start:]
    assert len(found.pieces) <= 12


@pytest.mark.parametrize("rest", ["]", " ]", "\n]\n", ', {"role": "user", "content": "z"}]', ' ,{"role":"tool"}]'])
def test_a_list_is_read_the_same_with_and_without_its_beginning(rest):
    begun = '[{"role": "user", "content": "a list that goes on"}'
    assert messages.from_json(f"{begun}]")
    assert messages.from_json(begun + rest) == messages.parse(json.loads(begun + rest))


@pytest.mark.parametrize("rest", ["", "]x", "}]", ",", ",]", ' {"role": "user"}]'])
def test_what_goes_on_with_a_list_and_is_none_is_none(rest):
    begun = '[{"role": "user", "content": "a list that breaks off"}'
    assert messages.from_json(f"{begun}]")
    assert messages.from_json(begun + rest) is None
