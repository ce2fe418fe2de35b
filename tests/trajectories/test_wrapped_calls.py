"""Spans of a framework or a method around a client's call are of its request; other requests stay apart."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dumps import chat_span, make_span
from tests.examples import examples
from tests.trajectories.test_double_recording import convert, rollout


def framework(number: int, parent: int, prompt: list[str], answer: str | None, **known):
    """A framework's LLM span, which knows no response id and shows the prompt in its own way."""
    return chat_span(number, parent, prompt, answer, attributes=known)


def client(number: int, parent: int, prompt: list[str], answer: str | None, response_id: str = "r1", **known):
    return chat_span(number, parent, prompt, answer, attributes={"gen_ai.response.id": response_id, **known})


def test_a_framework_s_span_around_the_client_s_has_its_answer_and_not_its_prompt(tmp_path):
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        ("framework", framework(2, 1, ["a"], "b")),
        ("client", client(3, 2, ["be brief", "ok", "a"], "b")),
    )
    (call,) = trajectory.calls
    assert (call.span_id, call.response_id) == (f"{2:016x}", "r1")
    assert [message.content for message in call.input_messages] == ["be brief", "ok", "a"]


def calling(call_id: str) -> dict[str, str]:
    called = {"type": "tool_call", "id": call_id, "name": "f", "arguments": {"x": 1}}
    message = {"role": "assistant", "parts": [called], "finish_reason": "tool_call"}
    return {"gen_ai.output.messages": json.dumps([message])}


@pytest.mark.parametrize(("call_id", "calls"), [("c1", 1), ("c2", 2)])
def test_equal_tool_calls_of_other_ids_are_other_calls(tmp_path, call_id, calls):
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        ("framework", framework(2, 1, ["a"], None, **calling("c1"))),
        ("client", client(3, 2, ["c"], None, **calling(call_id))),
    )
    assert len(trajectory.calls) == calls


_ANSWERS = st.sampled_from(["b", "c"])
_REQUESTS = st.recursive(
    st.tuples(_ANSWERS, st.just([])), lambda inner: st.tuples(_ANSWERS, st.lists(inner, max_size=2)), max_leaves=8
)
"""An answer, and the requests that were made before the framework's span ended."""


@pytest.mark.long
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(_REQUESTS, max_size=3), st.randoms(use_true_random=False))
def test_n_requests_of_a_framework_are_n_calls_however_they_are_nested(tmp_path_factory, requests, random):
    scoped = [("app", rollout())]

    def make(request, parent: int) -> None:
        answer, inner = request
        number = 10 + len(scoped)
        scoped.append(("framework", framework(number, parent, ["a"], answer)))
        scoped.append(("client", client(number + 1, number, ["be brief", "", "a"], answer, f"r{number}")))
        for sub in inner:
            make(sub, number)

    for request in requests:
        make(request, 1)
    count = len(scoped) // 2
    random.shuffle(scoped)
    trajectories, report = convert(tmp_path_factory.mktemp("nested"), *scoped)
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    assert len(calls) == len({call.response_id for call in calls}) == count
    assert all(len(call.input_messages) == 3 for call in calls)
    assert report.trajectories.incomplete == {}


def request_without_answer(number: int, parent: int, **fields):
    return chat_span(number, parent, ["a"], None, **fields)


def test_a_span_of_the_request_alone_is_of_the_call_around_it(tmp_path):
    (trajectory,), report = convert(
        tmp_path,
        ("app", rollout()),
        ("client", client(2, 1, ["a"], "b")),
        ("another", request_without_answer(3, 2, attributes={"gen_ai.request.seed": 7})),
        ("another", chat_span(4, 2, ["a"], "b")),
    )
    (call,) = trajectory.calls
    assert (call.span_id, call.parameters, trajectory.complete) == (f"{2:016x}", {"seed": 7}, True)
    assert report.spans.used == 4


@pytest.mark.parametrize(
    "other",
    [
        request_without_answer(3, 2, status={"code": 2, "message": "overloaded"}),
        chat_span(3, 2, ["c"], None),
        request_without_answer(3, 2, attributes={"gen_ai.response.id": "r1"}),
        request_without_answer(3, 2, attributes={"gen_ai.usage.output_tokens": 3}),
        request_without_answer(3, 2, attributes={"output.value": "__REDACTED__"}),
        request_without_answer(3, 2, endTimeUnixNano="0"),
    ],
    ids=["failed", "another prompt", "answered", "answered in tokens", "hidden", "never ended"],
)
def test_what_may_be_a_request_of_its_own_stays_one(tmp_path, other):
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        ("client", client(2, 1, ["a"], "b")),
        ("another", other),
        ("another", chat_span(4, 2, ["a"], "b")),
    )
    assert len(trajectory.calls) == 2


LLAMAINDEX = "openinference.instrumentation.llama_index"


def method(number: int, parent: int, known: dict[str, object] | None = None, **fields):
    """A method of an LLM class, as the instrumentor of LlamaIndex records it: its arguments and what it gave back."""
    shown = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "input.value": json.dumps({"messages": ["ChatMessage(role='user')"]}),
        "input.mime_type": "application/json",
        "output.value": json.dumps({"message": {"role": "assistant", "blocks": [{"text": "b"}]}}),
        "output.mime_type": "application/json",
    }
    return make_span(number, parent, name="OpenAI.achat", attributes={**shown, **(known or {})}, **fields)


def asked_by_method(number: int, parent: int):
    said = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "a",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "b",
    }
    return method(number, parent, {**said, "output.value": "assistant: b"})


def test_methods_around_a_call_are_part_of_it(tmp_path):
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        (LLAMAINDEX, method(2, 1)),
        (LLAMAINDEX, method(3, 2, status={"code": 2, "message": "the answer is of no use"})),
        (LLAMAINDEX, asked_by_method(4, 3)),
        ("client", client(5, 4, ["a"], "b")),
    )
    (call,) = trajectory.calls
    assert (call.span_id, call.response_id, call.failed) == (f"{4:016x}", "r1", False)


@pytest.mark.parametrize(
    "known",
    [
        {"input.value": "__REDACTED__", "output.value": "__REDACTED__"},
        {"llm.token_count.completion": 3},
        {"llm.model_name": "another"},
    ],
    ids=["hidden", "tokens were counted", "another model"],
)
def test_a_call_whose_content_is_unknown_stays_one(tmp_path, known):
    (trajectory,), _ = convert(
        tmp_path, ("app", rollout()), (LLAMAINDEX, method(2, 1, known)), (LLAMAINDEX, asked_by_method(3, 2))
    )
    assert trajectory.incomplete_reasons == {"no content": 1}


def test_a_method_without_a_call_below_it_is_a_call_nobody_read(tmp_path):
    (trajectory,), _ = convert(tmp_path, ("app", rollout()), (LLAMAINDEX, method(2, 1)))
    assert trajectory.incomplete_reasons == {"no content": 1}
