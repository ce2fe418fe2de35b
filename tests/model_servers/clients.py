"""Clients: `clients.py URL` asks a server by the official clients of four dialects, and prints what each got.

A conversation has two turns, whole and streamed: the second has the result of the tool that the first called, or of one
that the agent makes up. What came is held against the client's own types, strictly: clients take whatever comes.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

import anthropic
import openai
from anthropic.types import Message, RawMessageStreamEvent
from google import genai
from google.genai import types
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

MODEL = "tiny"
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
ABOUT = {"name": "weather", "description": "Weather of a city"}
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
"""A server with a parser of reasoning holds a grammar against what comes behind reasoning alone."""

ASKS = ("How is the weather?", "Tell me more.")
SKY = '{"sky": "clear"}'
MADE_UP = ("call_made_up", ABOUT["name"], '{"city": "Rome"}')
"""The id, the name and the arguments of a call."""

LIMITS = (80, 16)
"""Tokens at most of either turn."""


def check(kind: Any, values: Iterable[Any]) -> None:
    """Hold values against a type of the client's, and print what does not fit."""
    known = TypeAdapter(kind)
    for value in values:
        try:
            known.validate_python(value.to_dict(mode="python", use_api_names=True))
        except ValidationError as error:
            for one in error.errors():
                print("INVALID", ".".join(map(str, one["loc"])), one["msg"], file=sys.stderr)


def chat(url: str, *, is_stream: bool) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
    said: list = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKS[0]}]
    for limit in LIMITS:
        asked = {"model": MODEL, "messages": said, "max_tokens": limit, "extra_body": PLAIN}
        asked["tools"] = [{"type": "function", "function": {**ABOUT, "parameters": CITY}}]
        if is_stream:
            state, usage = ChatCompletionStreamState(), {"include_usage": True}
            chunks = list(client.chat.completions.create(**asked, stream=True, stream_options=usage))
            check(ChatCompletionChunk, chunks)
            for chunk in chunks:
                state.handle_chunk(chunk)
            answer = state.current_completion_snapshot
        else:
            answer = client.chat.completions.create(**asked)
            check(ChatCompletion, [answer])
        (one,) = answer.choices
        calls = one.message.tool_calls or []
        for call in calls:
            print("call", call.function.name, call.function.arguments)
        told(one.finish_reason, one.message.content, answer.usage.prompt_tokens, answer.usage.completion_tokens)
        called = [(call.id, call.function.name, call.function.arguments) for call in calls] or [MADE_UP]
        functions = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in called
        ]
        said.append({"role": "assistant", "content": one.message.content or "", "tool_calls": functions})
        said += [{"role": "tool", "tool_call_id": call_id, "content": SKY} for call_id, *_ in called]
        said.append({"role": "user", "content": ASKS[1]})


def messages(url: str, *, is_stream: bool) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)
    said: list = [{"role": "user", "content": ASKS[0]}]
    for limit in LIMITS:
        asked = {"model": MODEL, "messages": said, "max_tokens": limit, "system": "Be brief.", "extra_body": PLAIN}
        asked |= {"tools": [{**ABOUT, "input_schema": CITY}]}
        if is_stream:
            check(RawMessageStreamEvent, client.messages.create(**asked, stream=True))
            with client.messages.stream(**asked) as stream:
                print("events", *dict.fromkeys(event.type for event in stream))
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**asked)
        check(Message, [answer])
        calls = [block for block in answer.content if block.type == "tool_use"]
        for call in calls:
            print("call", call.name, json.dumps(call.input))
        text = "".join(block.text for block in answer.content if block.type == "text")
        told(answer.stop_reason, text, answer.usage.input_tokens, answer.usage.output_tokens)
        called: list = [block.to_dict() for block in answer.content]
        if not calls:
            called.append({"type": "tool_use", "id": MADE_UP[0], "name": MADE_UP[1], "input": json.loads(MADE_UP[2])})
        ids = [call.id for call in calls] or [MADE_UP[0]]
        results = [{"type": "tool_result", "tool_use_id": call_id, "content": SKY} for call_id in ids]
        said.append({"role": "assistant", "content": called})
        said.append({"role": "user", "content": [*results, {"type": "text", "text": ASKS[1]}]})


def responses(url: str, *, is_stream: bool) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
    said: list = [{"role": "user", "content": ASKS[0]}]
    for limit in LIMITS:
        asked = {"model": MODEL, "input": said, "max_output_tokens": limit, "instructions": "Be brief."}
        asked |= {"tools": [{"type": "function", **ABOUT, "parameters": CITY}], "extra_body": PLAIN}
        asked["store"] = False
        if is_stream:
            events = list(client.responses.create(**asked, stream=True))
            print("events", *dict.fromkeys(event.type for event in events))
            check(ResponseStreamEvent, events)
            answer = events[-1].response
        else:
            answer = client.responses.create(**asked)
        check(Response, [answer])
        calls = [item for item in answer.output if item.type == "function_call"]
        for call in calls:
            print("call", call.name, call.arguments)
        told(answer.status, answer.output_text, answer.usage.input_tokens, answer.usage.output_tokens)
        said += [item.to_dict(mode="json") for item in answer.output]
        if not calls:
            said.append(dict(zip(("type", "call_id", "name", "arguments"), ("function_call", *MADE_UP), strict=True)))
        ids = [call.call_id for call in calls] or [MADE_UP[0]]
        said += [{"type": "function_call_output", "call_id": call_id, "output": SKY} for call_id in ids]
        said.append({"role": "user", "content": ASKS[1]})


def gemini(url: str, *, is_stream: bool) -> None:
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=url, timeout=300_000))
    look = types.FunctionDeclaration(**ABOUT, parameters_json_schema=CITY)
    said = [types.Content(role="user", parts=[types.Part(text=ASKS[0])])]
    for limit in LIMITS:
        config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[types.Tool(function_declarations=[look])],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            thinking_config=types.ThinkingConfig(thinking_budget=0),
            max_output_tokens=limit,
        )
        asked = {"model": MODEL, "contents": said, "config": config}
        if is_stream:
            answers = list(client.models.generate_content_stream(**asked))
        else:
            answers = [client.models.generate_content(**asked)]
        parts = [part for answer in answers for part in answer.candidates[0].content.parts or ()]
        calls = [part.function_call for part in parts if part.function_call]
        for call in calls:
            print("call", call.name, json.dumps(call.args))
        text, usage = "".join(part.text or "" for part in parts), answers[-1].usage_metadata
        reason = answers[-1].candidates[0].finish_reason.value
        told(reason, text, usage.prompt_token_count, usage.candidates_token_count)
        if not calls:
            calls = [types.FunctionCall(id=MADE_UP[0], name=MADE_UP[1], args=json.loads(MADE_UP[2]))]
            parts.append(types.Part(function_call=calls[0]))
        results = [
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=json.loads(SKY)))
            for call in calls
        ]
        said.append(types.Content(role="model", parts=parts))
        said.append(types.Content(role="user", parts=[*results, types.Part(text=ASKS[1])]))


def told(reason: str | None, text: str | None, asked: int, answered: int) -> None:
    print(reason, "text" if text else "no text", "counted" if asked > 0 and answered > 0 else "uncounted")


if __name__ == "__main__":
    for ask in (chat, messages, responses, gemini):
        for way in (False, True):
            for stream in (sys.stdout, sys.stderr):
                print(f"## {ask.__name__} {'streamed' if way else 'whole'}", file=stream, flush=True)
            ask(sys.argv[1], is_stream=way)
