"""Requests of three dialects in the words of Chat Completions, and answers of Chat Completions in theirs."""

import json

import httpx
import pytest

from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.translation import Translation, last_answer, translated
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


def test_a_tool_whose_arguments_have_to_fit_is_one_in_chat_too():
    function = {"name": "look", "parameters": LOOK, "strict": True}
    of_messages = {"name": "look", "input_schema": LOOK, "strict": True}
    for dialect, tool in (("messages", of_messages), ("responses", {"type": "function", **function})):
        body = json.loads(Translation(dialect, {"model": "m", "tools": [tool]}).body)
        assert body["tools"] == [{"type": "function", "function": function}]


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
    else:  # vLLM leaves out what is null, Anthropic does not
        theirs[1].setdefault("stop_sequence", None)
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
    "mixed": [
        piece(0, "", "a", "look"),
        piece(1, "{", "b", "look"),
        piece(0, '{"where": '),
        piece(1, "}"),
        piece(0, '"up"}'),
    ],
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
        [piece(0, "{}", "a", "look"), piece(1, "{}", "b", "look"), piece(0, "{}"), FINISH, "[DONE]"],
    ],
    ids=["cut", "no finish", "error", "behind its end"],
)
def test_a_stream_that_breaks_is_an_error_and_no_answer(broken):
    (last,) = streamed("messages", broken)[-1:]
    assert last["type"] == "error"
    (last,) = streamed("responses", broken)[-1:]
    assert last["type"] == "response.failed"
    (last,) = streamed("gemini", broken)[-1:]
    assert last["error"]["status"] == "INTERNAL"


def whole(dialect: str, message: dict, finish: str = "stop", usage: dict | None = None, **choice) -> dict:
    """The answer to a request, of a chat completion with this message."""
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **choice}]
    answer = {"id": "c", "model": "m", "choices": choices, "usage": usage or {}}
    translation = Translation(dialect, {"model": "m", "messages": [], "input": "", "contents": []})
    status, body = translation.rest(200, json.dumps(answer).encode(), is_stream=False)
    assert status == 200
    return json.loads(body)


STOPS = [
    ({"content": "Hi"}, "stop", {}, ("end_turn", None), ("completed", None), "STOP"),
    ({"content": "Hi"}, "stop", {"stop_reason": "x"}, ("stop_sequence", "x"), ("completed", None), "STOP"),
    ({"content": "Hi"}, "stop", {"matched_stop": 151645}, ("end_turn", None), ("completed", None), "STOP"),
    ({"content": "Hi"}, "length", {}, ("max_tokens", None), ("incomplete", "max_output_tokens"), "MAX_TOKENS"),
    ({"content": "Hi"}, "content_filter", {}, ("refusal", None), ("incomplete", "content_filter"), "SAFETY"),
    ({"refusal": "No."}, "stop", {}, ("refusal", None), ("completed", None), "SAFETY"),
    ({"tool_calls": [CALL]}, "tool_calls", {}, ("tool_use", None), ("completed", None), "STOP"),
    ({"tool_calls": [CALL]}, "length", {}, ("max_tokens", None), ("incomplete", "max_output_tokens"), "MAX_TOKENS"),
    ({"content": "Hi"}, "abort", {}, (None, None), ("incomplete", "abort"), "OTHER"),
]


@pytest.mark.parametrize(("message", "finish", "choice", "anthropic", "openai", "google"), STOPS)
def test_why_an_answer_ended_is_said_in_the_dialect(message, finish, choice, anthropic, openai, google):
    answer = whole("messages", message, finish, **choice)
    assert (answer["stop_reason"], answer["stop_sequence"]) == anthropic
    answer = whole("responses", message, finish, **choice)
    assert (answer["status"], (answer["incomplete_details"] or {}).get("reason")) == openai
    assert whole("gemini", message, finish, **choice)["candidates"][0]["finishReason"] == google

    delta = {**message, "tool_calls": [{"index": 0, **call} for call in message.get("tool_calls", ())]}
    end = {**FINISH, "choices": [{"index": 0, "delta": {}, "finish_reason": finish, **choice}]}
    events = {dialect: streamed(dialect, [chunk(**delta), end, "[DONE]"]) for dialect in REQUESTS}
    ended = events["messages"][-2]["delta"]
    assert (ended["stop_reason"], ended["stop_sequence"]) == anthropic
    ended = events["responses"][-1]["response"]
    assert (ended["status"], (ended["incomplete_details"] or {}).get("reason")) == openai
    assert events["gemini"][-1]["candidates"][0]["finishReason"] == google


def test_usage_counts_what_was_cached_and_what_was_thought():
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 3}}
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16, **details}
    counted = whole("messages", {"content": "Hi"}, usage=usage)["usage"]
    assert counted == {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 4}
    counted = whole("responses", {"content": "Hi"}, usage=usage)["usage"]
    assert (counted["input_tokens"], counted["output_tokens"], counted["total_tokens"]) == (9, 7, 16)
    assert counted["input_tokens_details"]["cached_tokens"] == 4
    assert counted["output_tokens_details"]["reasoning_tokens"] == 3
    counted = whole("gemini", {"content": "Hi"}, usage=usage)["usageMetadata"]
    assert (counted["candidatesTokenCount"], counted["thoughtsTokenCount"], counted["totalTokenCount"]) == (4, 3, 16)
    assert counted["cachedContentTokenCount"] == 4


def test_the_model_goes_on_with_what_it_is_said_to_have_begun():
    """A prefill, which Anthropic's and Gemini's servers know; a call of a tool is no beginning."""
    asked = [{"role": "user", "content": "JSON"}, {"role": "assistant", "content": "{"}]
    contents = [{"role": "user", "parts": [{"text": "JSON"}]}, {"role": "model", "parts": [{"text": "{"}]}]
    for dialect, request in (("messages", {"messages": asked}), ("gemini", {"contents": contents})):
        body = json.loads(Translation(dialect, {"model": "m", **request}).body)
        assert body["messages"][-1] == {"role": "assistant", "content": "{"}
        assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
    called = [{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}]
    assert "continue_final_message" not in json.loads(Translation("messages", {"messages": called}).body)


def test_a_held_stream_is_the_stream_of_the_whole_answer():
    """llama.cpp has no ids in a stream with tools, so it is asked for the whole."""
    message = {"content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    answer = {"id": "c", "model": "m", "choices": choices, "usage": USAGE["usage"]}
    for dialect in REQUESTS:
        request = {"model": "m", "stream": True, "messages": [], "input": [], "contents": []}
        held = Translation(dialect, request, is_held=True)
        assert not json.loads(held.body).keys() & {"stream", "stream_options"}
        status, events = held.rest(200, json.dumps(answer).encode(), is_stream=False)
        deltas = [{"reasoning_content": "Hm."}, {"content": "I look."}]
        deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(message["tool_calls"])]
        whole_stream = streamed(dialect, [*(chunk(**delta) for delta in deltas), FINISH, USAGE, "[DONE]"])
        datas = [json.loads(line[5:]) for line in events.decode().splitlines() if line.startswith("data:")]
        assert status == 200
        if dialect != "gemini":  # where the parts of a held answer come in one response
            assert [event["type"] for event in datas] == [event["type"] for event in whole_stream]
        assert datas[-1].keys() == whole_stream[-1].keys()
        refused = Translation(dialect, request, is_held=True).rest(429, b"{}", is_stream=False)
        assert (refused[0], "error" in json.loads(refused[1])) == (429, True)
    array = Translation("gemini", {"contents": [], "stream": True}, is_array=True, is_held=True)
    responses = json.loads(array.rest(200, json.dumps(answer).encode(), is_stream=False)[1])
    parts = [part for one in responses for part in one["candidates"][0]["content"]["parts"]]
    assert [part["functionCall"]["id"] for part in parts if "functionCall" in part] == ["c1", "c2"]


def test_what_llama_says_again_of_a_prefill_is_not_the_answer():
    """It does so where the answer does not stream; `timings` is its own."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "JSON"}, {"role": "assistant", "content": "{"}]}
    choices = [{"index": 0, "message": {"content": '{"a": 1}'}, "finish_reason": "stop"}]
    for more, text in (({"timings": {}}, '"a": 1}'), ({}, '{"a": 1}')):
        answer = json.dumps({"id": "c", "model": "m", "choices": choices, **more}).encode()
        _, body = Translation("messages", asked).rest(200, answer, is_stream=False)
        assert json.loads(body)["content"] == [{"type": "text", "text": text}]


def test_the_model_reads_that_a_tool_failed():
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "no sky", "is_error": True}
    body = json.loads(Translation("messages", {"messages": [{"role": "user", "content": [result]}]}).body)
    assert body["messages"] == [{"role": "tool", "tool_call_id": "c1", "content": "The tool failed:\nno sky"}]


@pytest.mark.parametrize(
    ("dialect", "request_", "left_out"),
    [
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 9}}, ["thinking.budget_tokens"]),
        ("messages", {"output_config": {"effort": "low", "task_budget": {}}}, ["output_config.task_budget"]),
        ("responses", {"reasoning": {"effort": "low", "summary": "auto"}}, ["reasoning.summary"]),
        ("responses", {"text": {"verbosity": "low"}}, ["text.verbosity"]),
        ("responses", {"tool_choice": {"type": "allowed_tools", "tools": []}}, ["tool_choice: allowed_tools"]),
        (
            "gemini",
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 9, "includeThoughts": True}}},
            ["generationConfig.thinkingConfig.thinkingBudget"],
        ),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, []),
    ],
)
def test_what_the_server_is_not_sent_is_named(dialect, request_, left_out):
    assert Translation(dialect, {"model": "m", **request_}).left_out == left_out


NAMED = {"type": "function", "function": {"name": "look"}}
CHOICES = [
    ("messages", {"type": "auto"}, "auto"),
    ("messages", {"type": "any"}, "required"),
    ("messages", {"type": "none"}, "none"),
    ("messages", {"type": "tool", "name": "look"}, NAMED),
    ("responses", "none", "none"),
    ("responses", "required", "required"),
    ("responses", {"type": "function", "name": "look"}, NAMED),
    ("responses", {"type": "function", "name": {}}, "auto"),  # which is no name
    ("gemini", {"mode": "AUTO"}, "auto"),
    ("gemini", {"mode": "NONE"}, "none"),
    ("gemini", {"mode": "ANY"}, "required"),
    ("gemini", {"mode": "ANY", "allowed_function_names": ["look"]}, NAMED),
]


@pytest.mark.parametrize(("dialect", "choice", "expected"), CHOICES)
def test_which_tool_is_to_be_called_is_said_in_words_of_chat(dialect, choice, expected):
    request, *_ = REQUESTS[dialect]
    chosen = {"toolConfig": {"functionCallingConfig": choice}} if dialect == "gemini" else {"tool_choice": choice}
    body = json.loads(Translation(dialect, {**request, **chosen}).body)
    assert body["tool_choice"] == expected


def test_a_request_that_is_nested_too_deep_is_refused():
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": deep}]}
    refused = translated("messages", {"model": "m", "max_tokens": 9, "messages": [called]})
    assert isinstance(refused, UntranslatableError)
    assert str(refused) == "body: nested too deep"


def test_inputs_that_are_no_lists_are_read():
    """A text where a list may stand, and calls of custom tools and results that are lists, with an image in one."""
    body = json.loads(Translation("responses", {"input": "Hi", "instructions": "Be brief."}).body)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    body = json.loads(Translation("messages", {"system": "Be brief.", "messages": CONVERSATION[-1:]}).body)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, CONVERSATION[-1]]
    url = "https://example.com/a.png"
    output = [{"type": "input_text", "text": "sky"}, {"type": "input_image", "image_url": url}]
    items = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+a"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": output},
    ]
    called, result, image = json.loads(Translation("responses", {"input": items}).body)["messages"]
    assert called["tool_calls"][0]["function"] == {"name": "patch", "arguments": '{"input": "+a"}'}
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "sky"}
    assert image == {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def test_images_stand_behind_the_results_of_all_parallel_calls():
    image = [{"type": "input_image", "image_url": "https://example.com/a.png"}]
    calls = [{"type": "function_call", "call_id": f"c{at}", "name": "look", "arguments": "{}"} for at in range(2)]
    results = [
        {"type": "function_call_output", "call_id": "c0", "output": image},
        {"type": "function_call_output", "call_id": "c1", "output": "sky"},
    ]
    said = [{"type": "message", "role": "user", "content": "Which?"}]
    messages = json.loads(Translation("responses", {"input": [*calls, *results, *said]}).body)["messages"]
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]


def test_schemas_of_gemini_are_json_schemas():
    nullable = {"type": "STRING", "nullable": True, "enum": ["a"], "maxLength": "9"}
    listed = {"type": ["INTEGER", "NULL"], "property_ordering": ["x"]}
    either = {"any_of": [{"type": "STRING"}], "nullable": True}
    properties = {"type": nullable, "any_of": listed, "nullable": either}  # names of properties stay
    config = {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "properties": properties}}
    body = json.loads(Translation("gemini", {"contents": {"parts": {"text": "Hi"}}, "generationConfig": config}).body)
    assert body["messages"] == [{"role": "user", "content": "Hi"}]  # without the lists around them
    assert body["response_format"]["json_schema"]["schema"]["properties"] == {
        "type": {"type": ["string", "null"], "enum": ["a", None], "maxLength": 9},
        "any_of": {"type": ["integer", "null"]},
        "nullable": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }


def test_arguments_that_are_no_json_reach_the_agent_and_come_back_as_they_were():
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"where": up'}}
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    answer = json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()
    _, body = Translation("messages", {"model": "m", "messages": []}).rest(200, answer, is_stream=False)
    message = json.loads(body)
    again = {"model": "m", "messages": [{"role": "assistant", "content": message["content"]}]}
    (sent,) = json.loads(Translation("messages", again).body)["messages"]
    assert sent["tool_calls"] == [call]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503, 529])
def test_errors_are_those_of_the_dialect(status):
    said = json.dumps({"error": {"message": "no", "type": "t", "code": "c"}}).encode()
    bodies = {}
    for dialect in REQUESTS:
        translation = Translation(dialect, {"model": "m", "messages": [], "input": "", "contents": []})
        code, body = translation.rest(status, said, is_stream=False)
        assert code == status
        bodies[dialect] = json.loads(body)
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 500: "api_error"}
    kinds |= {429: "rate_limit_error", 503: "overloaded_error", 529: "overloaded_error"}
    assert bodies["messages"] == {"type": "error", "error": {"type": kinds[status], "message": "no"}}
    assert bodies["responses"]["error"] == {"message": "no", "type": "t", "code": "c", "param": None}
    names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
    names |= {500: "INTERNAL", 503: "UNAVAILABLE", 529: "UNAVAILABLE"}
    assert bodies["gemini"]["error"] == {"code": status, "message": "no", "status": names[status]}


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"{}", b'{"choices": []}', b'{"choices": [3]}'])
@pytest.mark.parametrize("is_held", [False, True])
def test_what_is_no_completion_is_an_error(body, is_held):
    translation = Translation("messages", {"model": "m", "messages": [], "stream": is_held}, is_held=is_held)
    status, said = translation.rest(200, body, is_stream=False)
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
