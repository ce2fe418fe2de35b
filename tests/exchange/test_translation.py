"""Requests of three dialects in the words of Chat Completions, and answers of Chat Completions in theirs."""

import json

import httpx
import pytest

from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.translation import Translation, last_answer
from tests.model_gateway.exact_cases import comparable
from tests.model_gateway.record_vllm import asked, read

LOOK = {"type": "object", "properties": {"where": {"type": "string"}}}
FUNCTION = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": LOOK}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"where": "up"}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [IMAGE, {"type": "text", "text": "Look"}]},
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning": "Hm.",
        "reasoning_content": "Hm.",
        "tool_calls": [CALL, {**CALL, "id": "c2"}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sky"},
    {"role": "tool", "tool_call_id": "c2", "content": "sky"},
    {"role": "user", "content": "And?"},
]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": LOOK}}
MESSAGES = {
    "model": "m",
    "max_tokens": 9,
    "top_k": 3,
    "stop_sequences": ["x"],
    "metadata": {"user_id": "u"},
    "context_management": {"edits": []},
    "output_config": {"format": {"type": "json_schema", "schema": LOOK}},
    "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "Be brief."}],
    "tools": [{"name": "look", "description": "Looks.", "input_schema": LOOK}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "text", "text": "Look"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                *({"type": "tool_use", "id": one, "name": "look", "input": {"where": "up"}} for one in ("c1", "c2")),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "sky"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "sky"}]},
                {"type": "text", "text": "And?"},
            ],
        },
    ],
}
RESPONSES = {
    "model": "m",
    "max_output_tokens": 9,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "instructions": "Be brief.",
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": LOOK}},
    "tools": [{"type": "function", **FUNCTION["function"]}, {"type": "web_search"}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "input_text", "text": "Look"},
            ],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        *(
            {"type": "function_call", "call_id": one, "name": "look", "arguments": '{"where": "up"}'}
            for one in ("c1", "c2")
        ),
        {"type": "function_call_output", "call_id": "c1", "output": "sky"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sky"}]},
        {"role": "user", "content": "And?"},
    ],
}
GEMINI = {
    "model": "m",
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "tools": [
        {
            "function_declarations": [
                {
                    "name": "look",
                    "description": "Looks.",
                    "parameters": {"type": "OBJECT", "properties": {"where": {"type": "STRING"}}},
                }
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    "generationConfig": {
        "maxOutputTokens": 9,
        "topK": 3,
        "stopSequences": ["x"],
        "responseMimeType": "application/json",
        "responseJsonSchema": LOOK,
        "audioTimestamp": True,
    },
    "contents": [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, {"text": "Look"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"text": "I look.", "thoughtSignature": "s"},
                {"functionCall": {"id": "c1", "name": "look", "args": {"where": "up"}}},
                {"functionCall": {"id": "c2", "name": "look", "args": {"where": "up"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"result": "sky"}}},
                {"functionResponse": {"name": "look", "response": {"result": "sky"}}},
                {"text": "And?"},
            ],
        },
    ],
}
SAME = {"model": "m", "max_tokens": 9, "tools": [FUNCTION], "tool_choice": "required", "response_format": SCHEMA}
REQUESTS = {
    "messages": (
        MESSAGES,
        {**SAME, "top_k": 3, "stop": ["x"], "parallel_tool_calls": False},
        ["context_management"],
    ),
    "responses": (RESPONSES, {**SAME, "parallel_tool_calls": False}, ["include", "tools[1]: web_search"]),
    "gemini": (GEMINI, {**SAME, "top_k": 3, "stop": ["x"]}, ["generationConfig.audioTimestamp"]),
}


@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_conversation_with_tools_images_and_reasoning_is_the_same_in_every_dialect(dialect):
    request, expected, left_out = REQUESTS[dialect]
    translation = Translation(dialect, request)
    body = json.loads(translation.body)
    messages = CONVERSATION
    if dialect == "gemini":  # its results are objects
        messages = [
            {**message, "content": '{"result": "sky"}'} if message["role"] == "tool" else message
            for message in messages
        ]
    assert body.pop("messages") == messages
    assert body == expected
    assert translation.left_out == left_out
    streamed = json.loads(Translation(dialect, {**request, "stream": True}).body)
    assert streamed["stream"] is True
    assert streamed["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("dialect", "request_", "field"),
    [
        ("messages", {"mcp_servers": [{}]}, "mcp_servers"),
        ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "search_result"}]}]},
            "messages[0].content[0]",
        ),
        ("responses", {"input": "Hi", "previous_response_id": "r"}, "previous_response_id"),
        ("responses", {"input": [{"type": "item_reference", "id": "i"}]}, "input[0].type"),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ("gemini", {"contents": [], "cachedContent": "c"}, "cachedContent"),
        ("gemini", {"contents": [], "tools": [{"codeExecution": {}}]}, "tools[0].codeExecution"),
        ("gemini", {"contents": [{"parts": [{"fileData": {"mimeType": "video/mp4"}}]}]}, "contents[0].parts[0]"),
    ],
)
def test_what_chat_cannot_say_is_refused_by_its_name(dialect, request_, field):
    with pytest.raises(UntranslatableError) as refused:
        Translation(dialect, request_)
    assert refused.value.field.startswith(field)


@pytest.mark.parametrize("text", ["Say hello", "Stop"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_what_vllm_answers_itself_event_by_event(text, stream):
    """vLLM answered the same prompt, at temperature 0, in both dialects."""
    answers = list(zip(asked("0.32"), read("0.32")["own"], strict=True))
    (message, own), (_, (status, kind, chat)) = (
        next(
            (body, answer)
            for (path, body), answer in answers
            if path == f"/v1/{dialect}"
            and body["messages"][0]["content"] == text
            and bool(body.get("stream")) == stream
        )
        for dialect in ("messages", "chat/completions")
    )
    translation = Translation("messages", message)
    status, rest = translation.rest(status, chat.encode(), is_stream=stream)
    ours, theirs = (
        comparable(httpx.Response(code, headers={"content-type": kind}, content=body))
        for code, body in ((status, rest), (own[0], own[2]))
    )
    if stream:  # how many tokens the prompt has is known at the end
        for one in (ours, theirs):
            one[1][0]["message"].pop("usage")
    assert ours == theirs


def chunk(**delta) -> dict:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def piece(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> dict:
    return chunk(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}])


FINISH = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
USAGE = {"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}
STREAMS = {
    "vllm": [piece(0, "", "a", "look"), piece(0, '{"where"'), piece(0, ': "up"}'), piece(1, "{}", "b", "look")],
    "ids again": [piece(0, '{"where"', "a", "look"), piece(0, ': "up"}', "a", "look"), piece(1, "{}", "b", "look")],
    "whole": [piece(0, '{"where": "up"}', "a", "look"), piece(1, "{}", "b", "look")],
}


def streamed(dialect: str, chunks: list[dict | str]) -> list[dict]:
    """The events of an answer that comes byte by byte."""
    translation = Translation(dialect, {"model": "m", "stream": True, "messages": [], "input": [], "contents": []})
    data = b"".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n".encode() for one in chunks)
    events = b"".join(translation.take(data[at : at + 1]) for at in range(len(data))) + translation.end()
    return [json.loads(line[5:]) for line in events.decode().splitlines() if line.startswith("data:")]


@pytest.mark.parametrize("form", STREAMS)
def test_calls_stream_as_each_server_sends_them(form):
    events = streamed("messages", [chunk(reasoning_content="Hm."), *STREAMS[form], FINISH, USAGE, "[DONE]"])
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [(block["type"], block.get("id")) for block in blocks] == [
        ("thinking", None),
        ("tool_use", "a"),
        ("tool_use", "b"),
    ]
    deltas = [(event["index"], event["delta"]) for event in events if event["type"] == "content_block_delta"]
    inputs = ["".join(delta.get("partial_json", "") for at, delta in deltas if at == index) for index in (1, 2)]
    assert inputs == ['{"where": "up"}', "{}"]
    assert events[-2]["usage"] == {"input_tokens": 5, "output_tokens": 7}
    assert (events[-2]["delta"]["stop_reason"], events[-1]["type"]) == ("tool_use", "message_stop")

    items = streamed("responses", [*STREAMS[form], FINISH, USAGE, "[DONE]"])[-1]["response"]["output"]
    assert [(item["call_id"], item["arguments"]) for item in items] == [("a", '{"where": "up"}'), ("b", "{}")]

    *contents, last = streamed("gemini", [*STREAMS[form], FINISH, USAGE, "[DONE]"])
    parts = [part for content in contents for part in content["candidates"][0]["content"]["parts"]]
    assert [part["functionCall"]["args"] for part in parts] == [{"where": "up"}, {}]
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"]["totalTokenCount"] == 12


@pytest.mark.parametrize(
    "broken",
    [
        [chunk(content="Hel")],
        [chunk(content="Hel"), "[DONE]"],
        [chunk(content="Hel"), {"error": {"message": "the engine died"}}, "[DONE]"],
        [piece(0, "{", "a", "look"), piece(1, "{", "b", "look"), piece(0, "}"), FINISH, "[DONE]"],
    ],
    ids=["cut", "no finish", "error", "mixed calls"],
)
def test_a_stream_that_breaks_is_an_error_and_no_answer(broken):
    (last,) = streamed("messages", broken)[-1:]
    assert last["type"] == "error"
    (last,) = streamed("responses", broken)[-1:]
    assert last["type"] == "response.failed"
    (last,) = streamed("gemini", broken)[-1:]
    assert last["error"]["status"] == "INTERNAL"


def test_arguments_that_are_no_json_reach_the_agent_and_come_back_as_they_were():
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"where": up'}}
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    answer = json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()
    _, body = Translation("messages", {"model": "m", "messages": []}).rest(200, answer, is_stream=False)
    message = json.loads(body)
    again = {"model": "m", "messages": [{"role": "assistant", "content": message["content"]}]}
    (sent,) = json.loads(Translation("messages", again).body)["messages"]
    assert sent["tool_calls"] == [call]


@pytest.mark.parametrize("status", [400, 429, 503])
def test_errors_are_those_of_the_dialect(status):
    said = json.dumps({"error": {"message": "no", "type": "t", "code": "c"}}).encode()
    bodies = {}
    for dialect in REQUESTS:
        translation = Translation(dialect, {"model": "m", "messages": [], "input": "", "contents": []})
        code, body = translation.rest(status, said, is_stream=False)
        assert code == status
        bodies[dialect] = json.loads(body)
    kinds = {400: "invalid_request_error", 429: "rate_limit_error", 503: "overloaded_error"}
    assert bodies["messages"] == {"type": "error", "error": {"type": kinds[status], "message": "no"}}
    assert bodies["responses"]["error"] == {"message": "no", "type": "t", "code": "c", "param": None}
    names = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
    assert bodies["gemini"]["error"] == {"code": status, "message": "no", "status": names[status]}


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"{}", b'{"choices": []}', b'{"choices": [3]}'])
def test_what_is_no_completion_is_an_error(body):
    status, said = Translation("messages", {"model": "m", "messages": []}).rest(200, body, is_stream=False)
    assert status == 502
    assert json.loads(said)["error"]["type"] == "api_error"


def test_a_last_answer_ends_a_loop_in_every_dialect():
    ends = {}
    for dialect in ("chat", "completions", "messages", "responses", "gemini"):
        ends[dialect] = json.loads(last_answer(dialect, {"model": "m"}, "Over.").body)
        streamed_end = last_answer(dialect, {"model": "m", "stream": True}, "Over.")
        assert streamed_end.content_type.startswith("text/event-stream")
        assert b"Over." in streamed_end.body
    assert ends["chat"]["choices"][0]["message"]["content"] == "Over."
    assert ends["completions"]["choices"][0]["text"] == "Over."
    assert (ends["messages"]["content"][0]["text"], ends["messages"]["stop_reason"]) == ("Over.", "end_turn")
    assert (ends["responses"]["output"][0]["content"][0]["text"], ends["responses"]["status"]) == ("Over.", "completed")
    assert ends["gemini"]["candidates"][0]["content"]["parts"] == [{"text": "Over."}]
