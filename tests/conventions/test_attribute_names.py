"""Names are split once, spans of one instrumentor share their families, and nothing is remembered without end."""

import pytest

from art_otel.conventions import attribute_names
from art_otel.conventions.attribute_names import (
    MAX_NAME,
    REMEMBERED,
    REMEMBERED_LENGTH,
    REMEMBERED_NAMES,
    AttributeNames,
    families_of,
)


def test_families_that_start_alike_come_in_their_order():
    families = families_of(["gen_ai.b", "x", "gen_ai.a", "llm.c"])
    assert families.starting("gen_ai.") == ("gen_ai.b", "gen_ai.a")
    assert families.starting(("llm.", "x")) == ("x", "llm.c")
    assert families.starting("none") == ()


def prompt(messages):
    return ["m", *(f"llm.prompts.{at}.{field}" for at in range(messages) for field in ("role", "content"))]


@pytest.mark.parametrize("messages", [2, 70, 2_000])
def test_prompts_of_any_length_share_their_families(messages):
    families = families_of(prompt(messages))
    assert families is families_of(prompt(1))
    assert families.starting("") == ("m", "llm.prompts.0.role", "llm.prompts.0.content")


def test_an_index_is_a_step_of_digits_behind_another():
    names = ["0.a", "a.0b.c", "a.1", "a.1.b.22", "a.1.b.c", "a.1."]
    assert families_of(names).starting("") == ("0.a", "a.0b.c", "a.1", "a.0.b.0", "a.0.b.c", "a.0.")


def test_a_span_has_the_names_of_its_families_and_lists():
    names = AttributeNames(["x", "p.0.a", "p.1.a", "p.1.b", "q.3", "p.b"])
    assert names.of(["x", "q.3"]) == ["x", "q.3"]
    assert names.of(["x", "p.0.a"]) == ["x", "p.0.a", "p.1.a"]
    assert [names.count(family) for family in ("x", "p.0.a", "p.0.c")] == [1, 2, 0]
    assert names.entries("p") == {"0": {"a": "p.0.a"}, "1": {"a": "p.1.a", "b": "p.1.b"}}
    assert [names.entries(prefix) for prefix in ("q", "x", "p.1")] == [{"3": {None: "q.3"}}, {}, {}]


def count(families):
    """How many families there are, noted each time it is asked."""
    asked.append(families)
    return len(families.starting(""))


asked = []


def test_what_families_tell_is_asked_once():
    assert [families_of(["told.a", f"told.{at}.b"]).memo(count) for at in range(3)] == [2, 2, 2]
    assert asked == [families_of(["told.a", "told.0.b"])]


def test_families_among_others_come_in_the_order_of_those():
    families = families_of(["b", "x", "a"])
    assert families.among(("a", "b", "c")) == ("a", "b")
    assert "x" in families
    assert "c" not in families


def test_names_without_end_are_not_remembered_without_end():
    for number in range(3 * REMEMBERED):
        assert families_of([f"name.x{number}"]).starting("name.") == (f"name.x{number}",)
    families_of(prompt(REMEMBERED_NAMES))
    assert len(attribute_names._REMEMBERED_FAMILIES) <= REMEMBERED
    assert len(attribute_names._SPLIT_NAMES) <= REMEMBERED_NAMES


def test_long_names_are_not_remembered():
    long = [f"{letter}.0.{'n' * REMEMBERED_LENGTH}" for letter in "ab"]
    assert families_of(long).starting("a") == (long[0],)
    assert tuple(long) not in attribute_names._REMEMBERED_FAMILIES
    assert all(name not in attribute_names._SPLIT_NAMES for name in [*long, f"a.1.{'n' * MAX_NAME}"])
