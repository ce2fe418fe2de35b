"""Packed numbers and message identity."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Logprobs, Message, TokenIds, ToolCall, ToolSet

IDS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8)


@given(IDS, IDS)
def test_token_ids_are_a_sequence_of_int32(first, second):
    one, two = TokenIds.of(first), TokenIds.of(second)
    assert list(one) == one.tolist() == first
    assert len(one) == len(first)
    assert [one[at] for at in range(len(one))] == first
    assert (one + two).tolist() == first + second
    assert (one + two).startswith(one)
    assert (one + two).after(len(first)) == two
    assert (one == two) == (first == second)
    assert hash(one) == hash(TokenIds.of(first))
    assert repr(one) == f"TokenIds({first})"


@given(IDS, st.slices(8))
def test_a_slice_of_packed_numbers_is_packed(numbers, part):
    ids = TokenIds.of(numbers)
    assert ids[part] == TokenIds.of(numbers[part])
    assert isinstance(ids[part], TokenIds)
    logprobs = Logprobs.of([number / 2**31 for number in numbers])
    assert logprobs[part] == Logprobs.of(logprobs.tolist()[part])
    assert isinstance(logprobs[part], Logprobs)


def test_an_index_reads_one_number():
    ids = TokenIds.of(range(5))
    assert (ids[-1], ids[0]) == (4, 0)
    with pytest.raises(IndexError):
        ids[5]
    with pytest.raises(IndexError):
        ids[-6]
    assert sum(map(TokenIds(bytes(800_000)).__getitem__, range(200_000))) == 0  # 80 s if each index copied all


def test_packed_numbers_refuse_what_does_not_fit():
    with pytest.raises(OverflowError):
        TokenIds.of([2**31])
    with pytest.raises(TypeError):
        TokenIds.of(["a"])
    with pytest.raises(ValueError, match="4 bytes"):
        TokenIds(b"abc")
    assert TokenIds(b"") != Logprobs(b"")


def test_a_tool_set_is_a_tuple_with_its_text():
    definitions = ({"type": "function", "function": {"name": "f", "strict": True}}, {"type": "web_search"})
    tools = ToolSet(json.dumps(definitions))
    assert json.loads(tools.json) == json.loads(json.dumps(tools)) == [*definitions]
    assert tools == definitions == pickle.loads(pickle.dumps(tools))
    assert tools == ToolSet(json.dumps([dict(reversed(one.items())) for one in definitions]))
    assert tools != ToolSet("[]")
    assert not ToolSet("[]")
    assert repr(tools) == repr(definitions)


def test_messages_are_the_same_however_they_were_spelt():
    call = ToolCall(id="c", name="f", arguments='{"a": 1, "b": [2]}')
    spelt = ToolCall(id="c", name="f", arguments=json.dumps({"b": [2], "a": 1}, separators=(",", ":")), exact=False)
    first = Message(role="assistant", content=None, tool_calls=(call,), reasoning="hm")
    second = Message(role="assistant", content="", tool_calls=(spelt,), name="me")
    assert first.identity == second.identity
    assert first.identity != Message(role="assistant", content="x", tool_calls=(call,)).identity
    odd = ToolCall(name="f", arguments="not json")
    assert Message(role="assistant", tool_calls=(odd,)).identity[3] == ((None, "f", "not json"),)
