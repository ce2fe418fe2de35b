"""What is found of broken text is the same whichever way it is found, and costs what the text costs."""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from art_otel.sources.json_text.brackets import Brackets
from art_otel.sources.json_text.faults import json_problem
from art_otel.sources.json_text.scan import object_end, object_keys
from tests.batches.test_peer_errors import operations


@given(
    text=st.lists(st.sampled_from(['"a":', '{"a":1}', "\\", '"', '\\"', "{", "}", "[", "]", " "])).map("".join),
    scans=st.integers(0, 2),
)
@example(text='{"a":{[}}{"b":"{\\"}', scans=0)
@example(text='{"a":"' * 3 + '"}}', scans=0)
def test_all_brackets_at_once(text, scans):
    data = text.encode()
    brackets = Brackets(data, scans)
    for start in [place for place, byte in enumerate(data) if byte == ord("{")]:
        for limit in range(start, len(data) + 1):
            end = object_end(data, start, limit)
            assert brackets.end(start, limit) == end
            if end is not None:
                assert brackets.keys(start, end) == object_keys(data, start, end)


def test_brackets_far_from_each_other():
    data = b'{"a":[{}%b],"b":"%b"}' % (b",{}" * 50_000, b"{" * 100_000)
    brackets = Brackets(data, scans=0)
    assert (brackets.end(0, len(data)), brackets.end(6, 8)) == (len(data), 8)
    assert brackets.keys(0, len(data)) == {b"a", b"b"}


def test_as_many_answers_as_there_are_objects():
    nested, opened = b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b'{"a":{"b":1} ' * 20_000
    for data in (nested, opened):
        counts = [operations(ask_each, data[:size] if data is opened else data[-size:]) for size in (60_000, 120_000)]
        assert counts[1] < 3 * counts[0]


def ask_each(data: bytes) -> None:
    brackets = Brackets(data)
    for match in re.finditer(rb'\{"', data):
        end = brackets.end(match.start(), len(data))
        if end is not None:
            brackets.keys(match.start(), end)


PARTS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "-",
    "1",
    ".",
    "e",
    '"a":',
    '"NaN',
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    " ",
    " " * 3000,
]


@given(text=st.lists(st.sampled_from(PARTS), max_size=8).map("".join), ends=st.sampled_from(["{}", "[{}]", "[1,{}]"]))
@example(text="NaN" + " " * 2037 + ",NaN" + " " * 9000 + ",-Infinity", ends="[{}]")
@example(text="NaN,1.NaN", ends="[{}]")
@example(text='{"a":NaN,NaN:1}', ends="{}")
def test_numbers_that_are_not_finite_are_told_from_other_faults(text, ends):
    data = ends.format(text).encode()
    problem = json_problem(data)
    if problem is None or problem.reason in ("not JSON", "not a finite number"):
        assert is_json_of_python(data) == (problem is None or problem.reason == "not a finite number")


def is_json_of_python(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
