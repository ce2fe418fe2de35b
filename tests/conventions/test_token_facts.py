"""What RL needs of a completion beside ids and logprobs: read from servers, written as attributes, read back."""

import base64
import io
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Message, RoutedExperts, TokenIds, WeightVersion
from art_otel.conventions import encode_ids, parse_call
from art_otel.conventions.bodies.token_facts import fact_attributes, parse_routed_experts
from art_otel.conventions.call import merge_calls
from art_otel.errors import ParseError
from art_otel.testing import SpanBuilder
from art_otel.testing.records import choices


def npy(array: np.ndarray) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return base64.b64encode(buffer.getvalue()).decode()


def call(attributes: dict):
    known = {"gen_ai.operation.name": "chat", "art.tokens.prompt": encode_ids(TokenIds.of([7, 8, 9]))}
    return parse_call(SpanBuilder().span("chat policy", kind="client", attributes=known | attributes))


def sampled(facts: dict, ids=(1, 2, 3)):
    return call({"art.tokens.completion.0": encode_ids(TokenIds.of(ids)), **facts})


@given(choices())
def test_what_is_written_reads_back_equal(choice):
    choice = msgspec.structs.replace(choice, message=Message(role="assistant", content="words"))
    prompt = TokenIds.of([5] * 8)
    read = parse_call(SpanBuilder().chat(None, [], [choice], prompt_token_ids=prompt)).choices[0]
    of_tokens = ("token_ids", "weight_versions", "routed_experts", "sampling_mask")
    assert [getattr(read, name) for name in of_tokens] == [getattr(choice, name) for name in of_tokens]


@given(
    st.sampled_from(["u1", "<u2", "<i4", "<i8"]),
    st.lists(st.integers(0, 255) | st.integers(0, 2**16 - 1), min_size=12, max_size=12),
)
def test_experts_of_a_server_are_kept_in_as_few_bytes_as_they_need(dtype, numbers):
    array = np.array(numbers, np.int64).reshape(3, 2, 2)
    array = array % 256 if dtype == "u1" else array
    experts = parse_routed_experts(npy(array.astype(dtype)))
    assert (len(experts), experts.layers, experts.experts) == array.shape
    assert experts.width == (1 if array.max() < 256 else 2)
    np.testing.assert_array_equal(np.frombuffer(experts.data, f"<u{experts.width}").reshape(array.shape), array)


def test_a_choice_of_vllm_has_all_three():
    choice = {
        "routed_experts": npy(np.arange(5 * 2 * 2, dtype=np.uint8).reshape(5, 2, 2)),
        "sampling_mask": [[1, 4], [2], [3, 5, 6]],
        "weight_versions": [{"version": "6", "start": 0, "end": 2}, {"version": "7", "start": 2, "end": 3}],
    }
    (read,) = sampled(fact_attributes(0, choice)).choices
    assert read.weight_versions == tuple(msgspec.convert(choice["weight_versions"], list[WeightVersion]))
    assert read.sampling_mask == tuple(map(TokenIds.of, choice["sampling_mask"]))
    assert read.routed_experts == RoutedExperts(data=bytes(range(20)), layers=2, experts=2)


def test_of_two_recordings_of_one_answer_either_may_have_them():
    """As an app that is traced with the ids, behind a gateway that knows more of the same ids."""
    facts = fact_attributes(0, {"weight_versions": [{"version": "6", "start": 0, "end": 3}]})
    app, gateway = sampled({}), sampled(facts)
    assert merge_calls([app, gateway]).choices == merge_calls([gateway, app]).choices == gateway.choices
    assert merge_calls([sampled({}, ids=(1, 2, 4)), gateway]).choices[0].weight_versions is None


def test_weights_that_nobody_named_have_no_version():
    assert fact_attributes(0, {"weight_versions": [{"version": "default", "start": 0, "end": 2}]}) == {}


@pytest.mark.parametrize(
    "facts",
    [
        {"weight_versions": [{"version": "6", "start": 0, "end": 4}]},
        {"weight_versions": [{"version": "6", "start": 2, "end": 3}, {"version": "7", "start": 0, "end": 2}]},
        {"sampling_mask": [[1], [2]]},
        {"routed_experts": npy(np.zeros((1, 2, 2), np.uint8))},
        {"routed_experts": npy(np.zeros((6, 2, 2), np.uint8))},
    ],
)
def test_what_does_not_fit_the_ids_is_unknown_with_a_gap(facts):
    attributes = fact_attributes(0, facts) or {"art.tokens.weight_versions.0": json.dumps(facts["weight_versions"])}
    read = sampled(attributes)
    (name,) = facts
    assert getattr(read.choices[0], name) is None
    assert read.choices[0].token_ids is not None
    assert [(gap.kind, gap.evidence) for gap in read.gaps] == [("not understood", f"art.tokens.{name}.0")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        base64.b64encode(b"\x93NUMPY\x01\x00").decode(),
        base64.b64encode(b"\x93NUMPY\x01\x00\xff\xff{'descr'").decode(),
        npy(np.zeros((2, 2), np.uint8)),
        npy(np.zeros((2, 2, 2), np.float32)),
        npy(np.full((2, 2, 2), -1, np.int32)),
        npy(np.full((2, 2, 2), 70_000, np.int32)),
        npy(np.asfortranarray(np.zeros((2, 3, 4), np.uint8))),
        npy(np.zeros((0, 0, 0), np.uint8)),
    ],
)
def test_what_is_no_array_of_experts_is_refused(text):
    with pytest.raises(ParseError):
        parse_routed_experts(text)
