"""What is decoded at once is what is read piece by piece."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from art_otel.conventions.bodies import messages
from art_otel.conventions.bodies.messages import decode_plain, plain_messages
from art_otel.errors import ParseError
from tests.conventions.builders import call

texts = st.sampled_from(["", "a", "é", "\n", None, 5, [], {}])
parts = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["text", "reasoning", None]), "content": texts, "text": texts, "more": texts}
)
calls = st.fixed_dictionaries(
    {"type": st.sampled_from(["tool_call", "tool_call_response"])},
    optional={
        "id": st.sampled_from(["a", "b", "", None]),
        "name": st.sampled_from(["f", "", None, 1]),
        "arguments": st.sampled_from([{}, {"x": [1, 2.5, None]}, "", '{"x":1}', None]),
        "response": st.sampled_from(["", "said", None, {"x": 1}, [{"type": "text", "text": "t"}]]),
    },
)
parts = parts | calls
entries = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "ai", "human", "system", "", None, 3])},
    optional={
        "parts": st.lists(parts, max_size=3) | texts,
        "content": texts | st.lists(parts, max_size=2),
        "finish_reason": texts,
        "name": st.just("n"),
    },
)


@given(st.lists(entries, max_size=3))
@example([{"role": "user", "parts": [{"content": "a"}]}])
def test_plain_messages_are_what_they_are_anywhere(listed):
    found = plain_messages(json.dumps(listed))
    if found is not None:
        assert found == messages.parse(listed)


@given(st.lists(entries, min_size=1, max_size=3))
def test_a_prompt_is_the_same_whether_it_goes_on_with_another_or_not(listed):
    first = {"role": "user", "content": "a beginning of its own"}
    known = messages.from_json(json.dumps([first]))
    assert known is not None
    try:
        expected = messages.parse([first, *listed])
    except ParseError:
        with pytest.raises(ParseError):
            messages.from_json(json.dumps([first, *listed]))
        return
    assert messages.from_json(json.dumps([first, *listed])) == expected


@given(st.lists(entries, max_size=3))
def test_choices_are_the_same_as_json_and_as_values(listed):
    as_text, as_values = (call({"gen_ai.output.messages": value}) for value in (json.dumps(listed), listed))
    assert as_text.choices == as_values.choices


@pytest.mark.parametrize("text", ["", "x", "{}", "[1]", '[{"role": "user"', "[" * 100_000, '[{"role":"\\ud800"}]'])
def test_what_is_no_list_of_plain_messages_is_left_to_others(text):
    assert decode_plain(text) is None
    assert plain_messages(text) is None
