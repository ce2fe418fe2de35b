"""Names are looked at once, and never without end."""

from art_otel.conventions import attributes as attribute_names
from art_otel.conventions.attributes import REMEMBERED, REMEMBERED_LENGTH, names_of


def test_names_that_start_alike_come_in_their_order():
    names = names_of(["gen_ai.b", "x", "gen_ai.a", "llm.c"])
    assert names.starting("gen_ai.") == ("gen_ai.b", "gen_ai.a")
    assert names.starting(("llm.", "x")) == ("x", "llm.c")
    assert names.starting("none") == ()
    assert names_of(["gen_ai.b", "x", "gen_ai.a", "llm.c"]) is names


def count(names):
    """How many names there are, noted each time it is asked."""
    asked.append(names)
    return len(names.starting(""))


asked = []


def test_what_names_tell_is_asked_once():
    assert [names_of(["told.a", "told.b"]).memo(count) for _ in range(3)] == [2, 2, 2]
    assert asked == [names_of(["told.a", "told.b"])]


def test_names_among_others_come_in_the_order_of_those():
    names = names_of(["b", "x", "a"])
    assert names.among(("a", "b", "c")) == ("a", "b")
    assert "x" in names
    assert "c" not in names


def test_sets_of_names_without_end_are_not_remembered_without_end():
    for number in range(3 * REMEMBERED):
        assert names_of([f"name.{number}"]).starting("name.") == (f"name.{number}",)
    assert len(attribute_names._REMEMBERED_NAMES) <= REMEMBERED


def test_long_names_are_not_remembered():
    long = "n" * (REMEMBERED_LENGTH + 1)
    assert names_of([long]).starting("n") == (long,)
    assert (long,) not in attribute_names._REMEMBERED_NAMES
