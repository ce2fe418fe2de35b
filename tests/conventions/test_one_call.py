"""Two recordings of one call become one; two calls stay two."""

import json

import pytest

from art_otel.conventions import merge_calls, parse_call
from art_otel.errors import UsageError
from tests.conventions.builders import event, span
from tests.conventions.recorded import calls, spans
from tests.gaps import unread
from tests.trajectories.recordings import are_one_call

ASKED = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "q"}]}])
OTHER = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "another"}]}])
SAID = json.dumps(
    [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}},
            ],
            "finish_reason": "tool_call",
        }
    ]
)
BODY = json.dumps({"model": "org/m", "messages": [{"role": "user", "name": "alice", "content": "q"}], "seed": 1})
FUNCTION = {"id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}
ANSWER = json.dumps(
    {
        "id": "r",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "tool_calls": [FUNCTION]},
                "token_ids": [1, 2],
            }
        ],
    }
)


def outer(attributes=None, **fields):
    found = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": ASKED,
        **(attributes or {}),
    }
    return span(found, scope="outer", span_id="a" * 16, **fields)


def inner(attributes=None, **fields):
    found = {"openinference.span.kind": "LLM", "input.value": BODY, **(attributes or {})}
    return span(found, scope="inner", span_id="b" * 16, kind="internal", **fields)


def test_nested_spans_of_two_scopes_with_one_response_are_one_call():
    assert are_one_call(outer({"gen_ai.response.id": "r"}), inner({"output.value": ANSWER}))
    assert not are_one_call(outer({"gen_ai.response.id": "other"}), inner({"output.value": ANSWER}))


def test_without_both_ids_nothing_may_contradict():
    assert are_one_call(outer(), inner({"output.value": ANSWER}))
    assert are_one_call(outer(), inner())
    assert not are_one_call(outer({"gen_ai.request.model": "n"}), inner())
    assert not are_one_call(outer({"gen_ai.input.messages": OTHER}), inner())
    longer = json.dumps([*json.loads(ASKED), *json.loads(OTHER)])
    assert not are_one_call(outer({"gen_ai.input.messages": longer}), inner())
    assert are_one_call(outer({"gen_ai.input.messages": "unknown"}), inner())


def test_a_span_in_one_of_its_own_scope_is_another_call():
    one = outer({"gen_ai.response.id": "r"})
    assert not are_one_call(one, outer({"gen_ai.response.id": "r"}))
    raw = outer({"gen_ai.response.id": "r"}, name="raw_gen_ai_request")
    assert are_one_call(one, raw)


def test_the_exact_fields_win_whichever_span_is_the_outer_one():
    one = outer(
        {"gen_ai.output.messages": SAID, "gen_ai.response.id": "r", "gen_ai.usage.input_tokens": 4},
        start_ns=1,
        end_ns=30,
    )
    other = inner({"output.value": ANSWER}, start_ns=2, end_ns=29)
    for spans_of_call in ((one, other), (other, one)):
        merged = merge_calls([parse_call(recorded) for recorded in spans_of_call])
        first = spans_of_call[0]
        assert (merged.span_id, merged.start_ns, merged.end_ns) == (first.span_id, first.start_ns, first.end_ns)
        (choice,) = merged.choices
        assert choice.message.reasoning == "hm"
        assert choice.message.tool_calls[0].arguments == '{"a":1}'
        assert choice.message.tool_calls[0].exact
        assert choice.token_ids.tolist() == [1, 2]
        assert merged.input_messages[0].name == "alice"
        assert merged.parameters == {"seed": 1}
        assert merged.request_model == "org/m"
        assert merged.usage.input_tokens == 4
        assert merged.conventions == ("openinference", "gen_ai")


def test_recordings_that_contradict_each_other_are_not_mixed():
    said = json.dumps(
        [{"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "a"}]}]
    )
    answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "b"}}]})
    (choice,) = merge_calls(
        [parse_call(outer({"gen_ai.output.messages": said})), parse_call(inner({"output.value": answer}))]
    ).choices
    assert (choice.message.content, choice.message.reasoning) == ("b", None)


def test_prompts_that_contradict_each_other_are_not_mixed():
    merged = merge_calls([parse_call(outer({"gen_ai.input.messages": OTHER})), parse_call(inner())])
    assert [message.content for message in merged.input_messages] == ["q"]


def test_the_prompt_is_of_the_recording_that_knows_the_response_whoever_is_trusted_more():
    shown = inner({"input.value": BODY.replace('"q"', '"Task: q"')})
    sent = outer({"gen_ai.response.id": "r"})
    for recordings in ((shown, sent), (sent, shown)):
        merged = merge_calls([parse_call(recorded) for recorded in recordings])
        assert [message.content for message in merged.input_messages] == ["q"]
        assert merged.parameters == {"seed": 1}


def history(arguments):
    """A prompt with a tool call in its history, as an instrumentor writes it."""
    called = {"type": "tool_call", "id": "c", "name": "f", "arguments": arguments}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "assistant", "parts": [called]}]),
        "gen_ai.response.id": "r",
    }


def test_a_framework_s_spelling_of_arguments_in_the_history_is_not_taken_for_what_was_sent():
    sampled = '{ "q" : 1}'
    merged = merge_calls([parse_call(span(history(sampled))), parse_call(span(history({"q": 1})))])
    (called,) = merged.input_messages[0].tool_calls
    assert (called.arguments, called.exact) == ('{"q": 1}', False)


def test_the_request_s_own_body_tells_how_arguments_were_sent_wherever_it_stands():
    sent = '{"q":1}'
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": sent}}]}
    body = {"input.value": json.dumps({"model": "m", "messages": [message]}), "output.value": ANSWER}
    recordings = [parse_call(inner(body)), parse_call(span(history({"q": 1})))]
    for calls_of_one in (recordings, recordings[::-1]):
        (called,) = merge_calls(calls_of_one).input_messages[0].tool_calls
        assert (called.arguments, called.exact) == (sent, True)


def test_a_choice_that_one_side_alone_knows_is_kept():
    two = json.dumps(
        [{"role": "assistant", "parts": []}, {"role": "assistant", "parts": [{"type": "text", "content": "b"}]}]
    )
    merged = merge_calls(
        [parse_call(outer({"gen_ai.output.messages": two})), parse_call(inner({"output.value": ANSWER}))]
    )
    assert [choice.index for choice in merged.choices] == [0, 1]
    assert merged.choices[1].message.content == "b"


def test_one_recording_stays_as_it_is_and_none_is_an_error():
    one = parse_call(outer())
    assert merge_calls([one]) is one
    with pytest.raises(UsageError):
        merge_calls([])


FAILED = {"status": "error", "status_message": "dropped"}


@pytest.mark.parametrize(
    ("recordings", "failed"),
    [
        ([outer({"gen_ai.output.messages": SAID}), inner(**FAILED)], False),
        ([outer(), inner(**FAILED)], True),
        ([outer(**FAILED), inner({"output.value": ANSWER})], True),
        ([outer(), inner(**FAILED), inner({"output.value": ANSWER})], False),
        ([outer(), inner({"output.value": ANSWER})], False),
    ],
)
def test_a_failure_counts_unless_a_retry_or_handler_made_good(recordings, failed):
    merged = merge_calls([parse_call(recorded) for recorded in recordings])
    assert (merged.failed, merged.error) == (failed, "dropped" if failed else None)


def test_what_was_lost_on_either_side_is_said():
    one = parse_call(outer({"gen_ai.output.messages": "[{"}, dropped_attributes_count=1))
    cut = {"output.value": '{"a', "output.mime_type": "application/json"}
    other = parse_call(inner({**cut, "art.env_state.x": 1, "art.policy.version": "v"}, dropped_attributes_count=2))
    merged = merge_calls([one, other])
    assert [gap.evidence for gap in merged.gaps if gap.kind == "dropped"] == ["2 attributes", "1 attributes"]
    assert set(unread(merged)) == {"gen_ai.output.messages", "output.value"}
    assert (merged.env_state, merged.policy_version) == ({"x": 1}, "v")


@pytest.mark.parametrize("scenario", ["sync_tools", "stream_sync", "n2", "responses_api", "raw_response"])
@pytest.mark.parametrize("mode", ["traceloop", "genai_span"])
def test_real_recordings_of_one_call_are_one(mode, scenario):
    """One instrumentor's span as if it were nested in the other's: the merged call is OpenInference's."""
    exact = calls("openinference", scenario)
    for one, other in zip(calls(mode, scenario), exact, strict=True):
        merged = merge_calls([one, other])
        assert merged.span_id == one.span_id
        assert merged.prompt_token_ids == other.prompt_token_ids
        assert merged.choices == other.choices
        assert merged.input_messages == other.input_messages


def test_parse_retries_are_two_calls_although_the_server_repeats_the_response_id():
    first, second = (
        one
        for one in spans("openinference", "parse")
        if one.name == "ChatCompletion" and "stream" in one.attributes["input.value"]
    )
    one, other = parse_call(first), parse_call(second)
    assert one.response_id == other.response_id
    assert not are_one_call(first, second)


def test_events_of_an_exception_do_not_make_a_good_call_bad():
    handled = outer({"gen_ai.output.messages": SAID}, events=[event("exception", {"exception.type": "X"})])
    assert not parse_call(handled).failed


def test_the_call_knows_its_prompt_as_the_recording_of_it_does():
    """A wrapper without a prompt says nothing of how the prompt is known."""
    known = {"gen_ai.operation.name": "chat"}
    asked = parse_call(span({**known, "gen_ai.input.messages": ASKED, "gen_ai.response.id": "r"}))
    wrapper = parse_call(span({**known, "gen_ai.output.messages": SAID}, span_id="3" * 16))
    assert [merge_calls(pair).prompt_known for pair in ([wrapper, asked], [asked, wrapper])] == [
        "parsed attributes"
    ] * 2
