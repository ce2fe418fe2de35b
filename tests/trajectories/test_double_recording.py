"""One request that several instrumentors recorded is one call; different requests stay apart."""

import json

import pytest

from tests.conversions import convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines


def rollout():
    return make_span(1, name="rollout x", attributes={"art.rollout.id": "r"})


def openinference(number: int, parent: int, response_id: str, *, content: str = "b", **fields):
    request = {"model": "m", "messages": [{"role": "user", "content": "a"}], "temperature": 0.5}
    response = {
        "id": response_id,
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": content},
                "token_ids": [5, 6],
            }
        ],
        "prompt_token_ids": [1, 2, 3],
    }
    known = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps(request),
        "input.mime_type": "application/json",
        "output.value": json.dumps(response),
        "output.mime_type": "application/json",
    }
    return make_span(number, parent, name="ChatCompletion", attributes=known, **fields)


def convert(tmp_path, *scoped):
    requests = [request_of(span, scope=scope) for scope, span in scoped]
    return convert_files(tmp_path / "out", write_lines(tmp_path / "in.jsonl", requests))


def test_nested_recordings_of_one_call_are_one_call_with_the_richest_fields(tmp_path):
    with_id = {"gen_ai.response.id": "resp1"}
    (trajectory,), report = convert(
        tmp_path,
        ("app", rollout()),
        ("opentelemetry.instrumentation.openai.v1", chat_span(2, 1, ["a"], "b", attributes=with_id)),
        ("opentelemetry.instrumentation.genai.openai", chat_span(3, 2, ["a"], "b", attributes=with_id)),
        ("openinference.instrumentation.openai", openinference(4, 3, "resp1")),
    )
    (call,) = trajectory.calls
    assert call.span_id == f"{2:016x}"
    assert call.prompt_token_ids.tolist() == [1, 2, 3]
    assert call.choices[0].token_ids.tolist() == [5, 6]
    assert call.parameters["temperature"] == 0.5
    assert report.calls.total == 1
    assert report.spans.used == 4
    assert trajectory.complete


def test_recordings_that_start_in_one_nanosecond_are_still_one_call(tmp_path):
    with_id = {"gen_ai.response.id": "resp1"}
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        ("two", chat_span(2, 3, ["a"], "b", attributes=with_id, startTimeUnixNano="5")),
        ("one", chat_span(3, 1, ["a"], "b", attributes=with_id, startTimeUnixNano="5")),
    )
    assert [call.span_id for call in trajectory.calls] == [f"{3:016x}"]


def trained_once(tmp_path, *scoped) -> bool:
    """Whether the recordings are one call, whose completion is trained once."""
    (trajectory,), _ = convert(tmp_path, ("app", rollout()), *scoped)
    return [turn.text_untrained for turn in trajectory.turns] == [None] and len(trajectory.calls) == 1


AT_ONCE = {"startTimeUnixNano": "1000010", "endTimeUnixNano": "1000030"}
INSIDE = {"startTimeUnixNano": "1000012", "endTimeUnixNano": "1000028"}
WITH_ID = {"gen_ai.response.id": "chatcmpl-1"}


@pytest.mark.parametrize("times", [AT_ONCE, INSIDE], ids=["LiteLLM's second callback", "two providers"])
@pytest.mark.parametrize("parent", [1, 2], ids=["beside", "nested"])
def test_what_one_instrumentor_recorded_twice_of_one_response_is_one_call(tmp_path, parent, times):
    first = chat_span(2, 1, ["a"], "b", attributes=WITH_ID, **AT_ONCE)
    assert trained_once(tmp_path, ("x", first), ("x", chat_span(3, parent, ["a"], "b", attributes=WITH_ID, **times)))


@pytest.mark.parametrize("around", [2, 3])
def test_what_is_inside_of_either_span_of_a_call_is_the_same_call(around, tmp_path):
    """Another instrumentor's recording is below the one that LiteLLM wrote first, whichever id that has."""
    doubles = [("x", chat_span(number, 1, ["a"], "b", attributes=WITH_ID, **AT_ONCE)) for number in (2, 3)]
    assert trained_once(tmp_path, *doubles, ("y", chat_span(4, around, ["a"], "b", **INSIDE)))


TOKENS = [WITH_ID | {"art.tokens.completion.0": f"i4:1:{token}AAAA=="} for token in ("BQ", "Bg")]


@pytest.mark.parametrize(
    ("answer", "known", "times"),
    [
        ("b", (WITH_ID, {"gen_ai.response.id": "chatcmpl-2"}), AT_ONCE),
        ("b", ({}, {}), AT_ONCE),
        ("c", (WITH_ID, WITH_ID), AT_ONCE),
        ("b", TOKENS, AT_ONCE),
        ("b", (WITH_ID, WITH_ID), {"startTimeUnixNano": "1000030", "endTimeUnixNano": "1000050"}),
    ],
    ids=["another id", "no ids", "another answer", "other tokens", "afterwards"],
)
def test_two_samples_of_one_prompt_are_two_calls(tmp_path, answer, known, times):
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        ("x", chat_span(2, 1, ["a"], "b", attributes=known[0], **AT_ONCE)),
        ("x", chat_span(3, 1, ["a"], answer, attributes=known[1], **times)),
    )
    assert [turn.text_untrained for turn in trajectory.turns] == [None, None]


@pytest.mark.parametrize("ends", [("1000010", "1000010"), ("1000010", "1000040")], ids=["both empty", "one empty"])
def test_recordings_without_length_that_start_at_once_are_one_call(tmp_path, ends):
    """A clock of milliseconds gives a fast server's answers no length."""
    times = [{"startTimeUnixNano": "1000010", "endTimeUnixNano": end} for end in ends]
    assert trained_once(
        tmp_path,
        ("x", chat_span(2, 1, ["a"], "b", attributes=WITH_ID, **times[0])),
        ("openinference.instrumentation.openai", openinference(3, 1, "chatcmpl-1", **times[1])),
    )
