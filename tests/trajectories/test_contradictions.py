"""What contradicts that two recordings are of one call, and what does not."""

import pytest
from msgspec import structs

from art_otel.calls import Choice, Message, TokenIds, ToolCall, Usage
from art_otel.trajectories.duplicate_groups import (
    contradicts,
    have_same_answer,
    may_be_one,
    usage_differs,
)
from tests.gaps import CUT, DROPPED, SCRUBBED
from tests.trajectories.recordings import call

LOOK = ToolCall(id="c1", name="look", arguments='{"x": 1}')


def tool(**fields):
    return call(answer=None, tools=[structs.replace(LOOK, **fields)])


def message(**fields):
    return call(choices=(Choice(index=0, message=Message(role="assistant", **fields), finish_reason="stop"),))


def choices(*answers: str):
    messages = [Message(role="assistant", content=answer) for answer in answers]
    return call(choices=tuple(Choice(index=at, message=one, finish_reason="stop") for at, one in enumerate(messages)))


def with_ids(*ids: int):
    (choice,) = call().choices or ()
    return call(choices=(structs.replace(choice, token_ids=TokenIds.of(ids)),))


DIFFERENT = {
    "response id": (call(response_id="r1"), call(response_id="r2")),
    "model": (call(request_model="m"), call(request_model="n")),
    "prompt": (call("a", None), call("c", None)),
    "longer prompt": (call("a", None), call("a c", None)),
    "other instructions": (call("system:s a", None), call("system:t a", None)),
    "prompt ids": (call("a", None, prompt_token_ids=TokenIds.of([1])), call("a", None, prompt_token_ids=TokenIds())),
    "answer": (call(answer="b"), call(answer="c")),
    "answer of one id": (call(answer="b", response_id="r"), call(answer="c", response_id="r")),
    "tool": (tool(), tool(name="listen")),
    "arguments": (tool(), tool(arguments='{"x": 2}')),
    "parsed arguments": (tool(), tool(arguments='{"x": 2}', exact=False)),
    "tool call's id": (tool(), tool(id="c2")),
    "text and tool call": (call(answer="b"), tool()),
    "completion ids": (with_ids(1), with_ids(2)),
    "other thinking": (call(answer="<think>x</think>b"), call(answer="<think>y</think>b")),
    "thinking alone": (call(answer="<think>x</think>"), call(answer="b")),
    "arguments as other text": (tool(), call(answer='{"x": 2}')),
    "number of choices": (choices("b", "c"), choices("b", "c", "d")),
    "cut answer": (call(answer="b", gaps=(CUT,)), call(answer="c")),
    "failed answer": (call(answer="b", error_type="x"), call(answer="c")),
}
ALIKE = {
    "nothing": (call(None, None, request_model=None), call()),
    "vendor's prefix": (call(request_model="org/m"), call(request_model="m")),
    "a router's name for the model": (
        call(request_model="policy", response_id="r"),
        call(request_model="m", response_id="r"),
    ),
    "prompt laid out otherwise": (call("a", "b"), call("c d", "b")),
    "no instructions": (call("a", None), call("system:s a", None)),
    "cut prompt": (call("weath", None, gaps=(CUT,)), call("weather today", None)),
    "dropped prompt": (call("c", None, gaps=(DROPPED,)), call("a d", None)),
    "spelling of arguments": (tool(), tool(arguments='{"x":1.0}')),
    "lost malformed arguments": (tool(arguments="{x"), tool(arguments="{}", exact=False)),
    "lost tool call's id": (tool(), tool(id=None)),
    "refusal as text": (message(refusal="no"), message(content="no")),
    "lost refusal": (message(refusal="no"), message()),
    "lost reasoning": (message(content="b", reasoning="hm"), message(content="b")),
    "lost thinking": (call(answer="<think>x</think>\nb"), call(answer="b")),
    "structured output as text": (tool(), call(answer='{"x":1}')),
    "space around": (call(answer="b\n"), call(answer="b")),
    "lost choices": (choices("b"), choices("b", "c")),
    "cut answer": (call(answer="ro", gaps=(CUT,)), call(answer="rose")),
    "failed stream": (call(answer="ro", error_type="x"), call(answer="rose")),
    "broken stream": (
        call(choices=(Choice(index=0, message=Message(role="assistant", content="ro")),), stream=True),
        call(answer="rose"),
    ),
    "failed without an answer": (call(answer=None, error_type="x"), call()),
    "scrubbed": (call(answer="[secret]", gaps=(SCRUBBED,)), call()),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_both_know_whole_contradicts(one, other):
    assert contradicts(one, other)
    assert contradicts(other, one)


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_what_a_recorder_loses_does_not(one, other):
    assert not contradicts(one, other)
    assert not contradicts(other, one)


def test_an_answer_is_the_same_where_both_tell_it():
    assert have_same_answer(call("a"), call("c"))
    assert have_same_answer(tool(), tool(id=None))
    assert have_same_answer(tool(), call(answer='{"x":1}'))
    assert have_same_answer(call(answer="<think>x</think>b"), call(answer="b"))
    assert not have_same_answer(call(answer="b"), call(answer=None))
    assert not have_same_answer(message(), message())
    assert not have_same_answer(choices("b"), choices("b", "c"))


def test_usage_differs_where_both_counted_and_neither_used_a_cache():
    five, six = call(usage=Usage(input_tokens=5)), call(usage=Usage(input_tokens=6))
    assert usage_differs(five, six)
    assert not usage_differs(five, call(usage=Usage(input_tokens=0)))
    assert not usage_differs(five, call(usage=Usage(input_tokens=6, cached_tokens=1)))
    assert not usage_differs(five, call())


def test_a_prompt_alone_and_an_answer_alone_are_one_call_by_the_response_s_id_only():
    assert not may_be_one(call("a", None), call(None, "b"))
    assert may_be_one(call("a", None, response_id="r"), call(None, "b", response_id="r"))
    assert may_be_one(call("a", None), call("a", "b"))
    assert may_be_one(call(None, None), call("a", "b"))
