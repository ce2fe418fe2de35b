"""Each scenario gives the same completions whoever recorded it; tests/snapshots have all else that is read of each."""

import json

import pytest

from tests.conventions.recorded import MODES, calls

SCENARIOS = (
    "sync_tools",
    "async_tools",
    "stream_sync",
    "n2",
    "parse",
    "responses_api",
    "error_retry",
    "raw_response",
    "long100",
)
NOT_INSTRUMENTED = {
    ("otelv2_span", "parse"): 2,
    ("otelv2_legacy", "parse"): 2,
    ("otelv2_span", "responses_api"): 9,
    ("otelv2_legacy", "responses_api"): 9,
}
"""How many calls, counted from the first, the instrumentor does not see at all."""

NO_COMPLETION = {("traceloop", "raw_response"): {1}}
"""Calls whose completion the instrumentor loses: a raw response whose stream it does not wrap."""

NO_TOOL_CALL_ID = {("traceloop", "responses_api")}
"""It writes the item's id in place of the call's id."""


def completion(choice):
    message = choice.message
    tool_calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return (choice.index, choice.finish_reason, message.role, message.content, message.refusal, tool_calls)


def completions(call):
    return None if call.choices is None else [completion(choice) for choice in call.choices]


def without_ids(found):
    return found and [(*rest, [(name, arguments) for _, name, arguments in calls]) for *rest, calls in found]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_completions_are_equal_across_instrumentors(mode, scenario):
    expected = [completions(call) for call in calls("openinference", scenario)]
    expected = expected[NOT_INSTRUMENTED.get((mode, scenario), 0) :]
    for position in NO_COMPLETION.get((mode, scenario), ()):
        expected[position] = None
    found = [completions(call) for call in calls(mode, scenario)]
    if (mode, scenario) in NO_TOOL_CALL_ID:
        expected, found = list(map(without_ids, expected)), list(map(without_ids, found))
    assert found == expected


NO_PROMPT = {("openinference", "long100"): {0, 2, 3, 4}, ("traceloop", "responses_api"): {8}}
"""Calls whose prompt is lost: dropped attributes, and a stream of the Responses API that failed."""


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "openinference"])
def test_prompts_are_equal_across_instrumentors(mode, scenario):
    expected = calls("openinference", scenario)[NOT_INSTRUMENTED.get((mode, scenario), 0) :]
    found = calls(mode, scenario)
    assert len(found) == len(expected)
    for position, (one, other) in enumerate(zip(found, expected, strict=True)):
        if position in NO_PROMPT.get((mode, scenario), ()):
            assert one.input_messages is None
        elif position not in NO_PROMPT.get(("openinference", scenario), ()):
            with_ids = (mode, scenario) not in NO_TOOL_CALL_ID
            assert asked(one, with_ids=with_ids) == asked(other, with_ids=with_ids)


def asked(call, *, with_ids):
    """What the prompt says, up to names and reasoning."""
    if with_ids:
        return [message.identity for message in call.input_messages]
    return [(message.role, message.content, len(message.tool_calls)) for message in call.input_messages]


def test_the_history_of_a_call_repeats_its_predecessor():
    """The same Message objects, not only equal ones: a repeated message is parsed once."""
    first, second = calls("genai_span", "sync_tools")
    assert second.input_messages[:2] == first.input_messages
    assert second.input_messages[0] is first.input_messages[0]
    assert second.input_messages[2].identity == first.choices[0].message.identity
