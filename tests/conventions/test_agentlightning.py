"""Agent Lightning's dumps: the tokens of its tracer, the spans of AgentOps and LiteLLM that it writes them to."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import merge_calls, parse_call, role_of
from art_otel.spans import Span
from tests.conventions.builders import call, span
from tests.conventions.recorded import CHECKED, records
from tests.conversions import convert_files, convert_spans
from tests.dumps import make_span
from tests.gaps import unread
from tests.trajectories.recordings import are_one_call

PROMPT, SAMPLED = [1, 2, 3], [4, 5]
LOGPROBS = [-0.25, -0.5]
CONTENT = json.dumps([{"token": "x", "bytes": None, "logprob": one, "top_logprobs": []} for one in LOGPROBS])
TOLD = {
    "gen_ai.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "m",
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "q",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "a",
    "gen_ai.completion.0.finish_reason": "stop",
}


def agentops(attributes=None, **fields):
    return call({**TOLD, **(attributes or {})}, name="openai.chat.completion", **fields)


def tokens_of(found):
    choice = found.choices[0]
    return (
        None if found.prompt_token_ids is None else found.prompt_token_ids.tolist(),
        None if choice.token_ids is None else choice.token_ids.tolist(),
        None if choice.logprobs is None else choice.logprobs.tolist(),
    )


def as_list(numbers):
    return numbers


@pytest.mark.parametrize("spelled", [as_list, tuple, json.dumps, str, lambda ids: json.dumps([ids])])
def test_ids_are_a_list_or_its_text(spelled):
    found = agentops({"prompt_token_ids": spelled(PROMPT), "response_token_ids": spelled(SAMPLED)})
    assert tokens_of(found) == (PROMPT, SAMPLED, None)
    assert found.choices[0].message.content == "a"
    assert found.choices[0].finish_reason == "stop"
    assert found.conventions == ("agentlightning", "gen_ai", "openllmetry")
    assert not unread(found)


@pytest.mark.parametrize("spelled", [as_list, json.dumps])
def test_logprobs_are_those_of_the_ids(spelled):
    content = json.loads(CONTENT)
    found = agentops({"response_token_ids": SAMPLED, "logprobs.content": spelled(content)})
    assert tokens_of(found) == (None, SAMPLED, LOGPROBS)


def test_logprobs_without_ids_and_tokens_that_are_ids():
    assert tokens_of(agentops({"logprobs.content": CONTENT})) == (None, None, LOGPROBS)
    spelled_out = CONTENT.replace('"x"', '"token_id:7"')
    assert tokens_of(agentops({"logprobs.content": spelled_out})) == (None, [7, 7], LOGPROBS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt_token_ids", "[1, 2"),
        ("prompt_token_ids", [1, -2]),
        ("prompt_token_ids", ["a"]),
        ("prompt_token_ids", 7),
        ("response_token_ids", [2**31]),
        ("response_token_ids", [[1], 2.5][::-1]),
        ("logprobs.content", CONTENT[:-9]),
        ("logprobs.content", "[{}]"),
        ("logprobs.content", json.dumps([{"logprob": -0.5}] * 3)),
    ],
)
def test_what_is_not_what_it_must_be_is_unknown_and_named(name, value):
    whole = {"prompt_token_ids": PROMPT, "response_token_ids": SAMPLED, "logprobs.content": CONTENT}
    found = agentops({**whole, name: value})
    assert unread(found) == (name,)
    expected = dict(zip(whole, (PROMPT, SAMPLED, LOGPROBS), strict=True)) | {name: None}
    assert tokens_of(found) == tuple(expected.values())
    assert found.choices[0].message.content == "a"


@pytest.mark.parametrize("nothing", [[], "[]", "", None])
def test_an_empty_list_tells_nothing(nothing):
    found = agentops({"prompt_token_ids": nothing, "response_token_ids": nothing})
    assert tokens_of(found) == (None, None, None)
    assert found.conventions == ("gen_ai", "openllmetry")
    assert not unread(found)


def test_exact_capture_wins_and_the_bodies_of_others_agree():
    packed = "i4:1:CQAAAA=="
    found = agentops({"response_token_ids": SAMPLED, "art.tokens.completion.0": packed})
    assert tokens_of(found) == (None, [9], None)
    assert "agentlightning" not in found.conventions
    found = agentops({"logprobs.content": CONTENT, "art.tokens.completion.0": "i4:2:BAAAAAUAAAA="})
    assert tokens_of(found) == (None, SAMPLED, LOGPROBS)
    found = agentops({"logprobs.content": CONTENT, "art.tokens.completion.0": packed})
    assert (tokens_of(found), unread(found)) == ((None, [9], None), ("logprobs.content",))
    body = json.dumps({"id": "r", "choices": [{"message": {"content": "a"}, "token_ids": SAMPLED}]})
    found = agentops({"response_token_ids": SAMPLED, "output.value": body})
    assert (tokens_of(found), len(found.choices)) == ((None, SAMPLED, None), 1)


def test_of_several_choices_the_first_has_tokens():
    second = {"gen_ai.completion.1.role": "assistant", "gen_ai.completion.1.content": "b"}
    found = agentops({**second, "response_token_ids": SAMPLED})
    assert [choice.message.content for choice in found.choices] == ["a", "b"]
    assert [choice.token_ids for choice in found.choices] == [TokenIds.of(SAMPLED), None]


def test_a_completion_of_which_only_tokens_are_known():
    """AgentOps writes the tool calls of an answer to spans of their own, and no content."""
    told = {name: value for name, value in TOLD.items() if name != "gen_ai.completion.0.content"}
    assert call(told, name="openai.chat.completion").choices is None
    (choice,) = call({**told, "response_token_ids": SAMPLED}, name="openai.chat.completion").choices
    assert (choice.token_ids, choice.finish_reason) == (TokenIds.of(SAMPLED), "stop")
    assert choice.message.content is None


def test_of_a_call_without_content_the_tokens_are_known():
    bare = {name: value for name, value in TOLD.items() if not name.startswith(("gen_ai.prompt", "gen_ai.comp"))}
    found = call({**bare, "prompt_token_ids": PROMPT, "response_token_ids": SAMPLED})
    assert found.input_messages is None
    assert tokens_of(found) == (PROMPT, SAMPLED, None)


@given(
    prompt=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
    sampled=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-1e3, 0, width=32)), min_size=1, max_size=20),
)
def test_all_ids_and_logprobs_come_through(prompt, sampled):
    ids, logprobs = [one for one, _ in sampled], [one for _, one in sampled]
    content = json.dumps([{"token": "", "logprob": one} for one in logprobs])
    found = agentops({"prompt_token_ids": prompt, "response_token_ids": ids, "logprobs.content": content})
    assert found.prompt_token_ids == TokenIds.of(prompt)
    assert found.choices[0].token_ids == TokenIds.of(ids)
    assert found.choices[0].logprobs == Logprobs.of(logprobs)


def test_agentops_words():
    functions = {
        "gen_ai.request.functions.0.name": "f",
        "gen_ai.request.functions.0.description": "does f",
        "gen_ai.request.functions.0.parameters": '{"type": "object"}',
        "gen_ai.request.headers": "{'authorization': 'secret'}",
        "gen_ai.request.streaming": True,
        "gen_ai.request.temperature": 0.5,
    }
    found = agentops(functions)
    assert found.operation_name == "chat"
    assert found.parameters == {"temperature": 0.5}
    assert found.stream is True
    function = {"name": "f", "description": "does f", "parameters": {"type": "object"}}
    assert found.tools == ({"type": "function", "function": function},)
    cut = agentops({"gen_ai.request.functions.1.name": "f"})
    assert (cut.tools, unread(cut)) == (None, ("gen_ai.request.functions",))


@pytest.mark.parametrize(
    ("name", "word", "role"),
    [
        ("openai.chat.completion", "chat", "inference"),
        ("openai.chat.completion", None, "inference"),
        ("openai.completion", "completion", "inference"),
        ("openai.embeddings", "embedding", "embeddings"),
        ("openai.images.generate", "unknown", "other"),
    ],
)
def test_agentops_roles(name, word, role):
    told = {"gen_ai.request.model": "m", "gen_ai.system": "OpenAI"}
    recorded = span(told if word is None else {**told, "gen_ai.request.type": word}, name=name)
    assert role_of(recorded) == role
    if role == "inference":
        assert parse_call(recorded).operation_name == ("chat" if "chat" in name else "text_completion")


def test_several_user_messages_of_a_chat_are_its_prompt():
    found = call(
        {
            "gen_ai.request.model": "m",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "q",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "and",
        },
        name="openai.chat.completion",
    )
    assert [message.content for message in found.input_messages] == ["q", "and"]


def test_a_call_that_is_the_rollout_itself_has_no_tokens_as_metadata(tmp_path):
    told = TOLD | {"prompt_token_ids": "[1]", "response_token_ids": "[2]", "logprobs.content": CONTENT, "app": "x"}
    (trajectory,), _ = convert_spans(tmp_path, make_span(1, name="openai.chat.completion", kind=3, attributes=told))
    assert trajectory.metadata == {"app": "x"}
    assert trajectory.calls[0].prompt_token_ids.tolist() == [1]


def recorded(name: str) -> list[Span]:
    found = [one for one in records(CHECKED / f"al-{name}.jsonl") if isinstance(one, Span)]
    return sorted(found, key=lambda one: one.start_ns)


def test_the_tracers_own_recording():
    spans = [one for one in recorded("agentops") if role_of(one) == "inference"]
    calls = [parse_call(one) for one in spans]
    for one, found in zip(spans[:4], calls, strict=False):
        logprobs = [entry["logprob"] for entry in json.loads(one.attributes["logprobs.content"])]
        expected = (one.attributes["prompt_token_ids"], one.attributes["response_token_ids"], logprobs)
        assert tokens_of(found) == expected
    assert [found.choices[0].finish_reason for found in calls] == ["tool_calls", *["stop"] * 4]
    assert [len(found.input_messages) for found in calls] == [2, 5, 7, 9, 1]
    assert [found.stream for found in calls] == [False] * 4 + [True]
    assert all(found.operation_name == "chat" and not unread(found) for found in calls)
    assert all(found.parameters == {"max_tokens": 64, "temperature": 0.7} for found in calls)
    assert [found.tools is not None for found in calls] == [True, False, False, False, False]
    asked = calls[1].input_messages[2].tool_calls[0]
    assert (asked.name, json.loads(asked.arguments)) == ("look_up", {"city": "city 37e9"})
    assert tokens_of(calls[4]) == (None, None, None)
    assert calls[4].choices[0].message.content == "turns boats while ae260f0e."


def test_the_proxys_own_recording():
    spans = {one.span_id: one for one in recorded("litellm")}
    raw = [one for one in spans.values() if one.name == "raw_gen_ai_request"]
    assert len(raw) == 3
    merged = []
    for inner in raw:
        outer = spans[inner.parent_span_id]
        assert role_of(outer) == role_of(inner) == "inference"
        assert are_one_call(outer, inner)
        merged.append(merge_calls([parse_call(outer), parse_call(inner)]))
        assert merged[-1].prompt_token_ids.tolist() == json.loads(inner.attributes["llm.hosted_vllm.prompt_token_ids"])
    assert [found.response_id for found in merged] == [f"chatcmpl-00000{number}" for number in (1, 2, 3)]
    assert all(found.conventions == ("litellm", "gen_ai") for found in merged[1:])
    assert [[len(choice.token_ids) for choice in found.choices] for found in merged] == [[5], [7], [6, 6]]
    assert [choice.logprobs is not None for choice in merged[2].choices] == [True, True]
    (call_of_tool,) = merged[0].choices[0].message.tool_calls
    assert call_of_tool == merged[1].input_messages[2].tool_calls[0]
    assert all(found.operation_name == "chat" and not unread(found) for found in merged)


@pytest.mark.parametrize(("name", "calls", "rewards"), [("agentops", 5, [0.75]), ("litellm", 3, [])])
def test_recordings_convert(tmp_path: Path, name, calls, rewards):
    trajectories, report = convert_files(tmp_path / "out", CHECKED / f"al-{name}.jsonl")
    assert report.calls.completed == report.calls.total == calls
    assert not report.spans.quarantined
    assert all(trajectory.complete for trajectory in trajectories)
    assert [one.reward for one in trajectories if one.reward is not None] == rewards
    with_ids = [call for one in trajectories for call in one.calls if call.prompt_token_ids is not None]
    assert len(with_ids) == calls - (name == "agentops")
