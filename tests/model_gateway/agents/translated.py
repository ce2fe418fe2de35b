"""What agents of three clients see of a model: `translated.py URL` asks by each, whole and streamed, and prints it."""

import json
import sys

import anthropic
import openai
from google import genai
from google.genai import types

MODEL = "m"
PARAMETERS = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ASKS = ("Look #think=1 #calls=2", "What is it? #think=1")


def messages(url: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)
    for is_stream in (False, True):
        said: list = [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            {"type": "text", "text": ASKS[0]},
        ]}]
        for turn in range(2):
            asked = {
                "model": MODEL,
                "max_tokens": 100,
                "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                "messages": said,
                "stop_sequences": ["never"],
                "tools": [{"name": "look", "description": "Looks.", "input_schema": PARAMETERS}],
            }
            if is_stream:
                with client.messages.stream(**asked) as stream:
                    kinds = [event.type for event in stream]
                    print("messages events", *dict.fromkeys(kinds))
                    answer = stream.get_final_message()
            else:
                answer = client.messages.create(**asked)
            print("messages", [block.type for block in answer.content], answer.stop_reason, answer.usage.input_tokens > 0 < answer.usage.output_tokens)
            results = [{"type": "tool_result", "tool_use_id": block.id, "content": f"{block.input}"} for block in answer.content if block.type == "tool_use"]
            said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [*results, {"type": "text", "text": ASKS[1]}]}]
    try:
        client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "Hi #fail=429"}])
    except anthropic.RateLimitError as error:
        print("messages", type(error).__name__, error.body)
    try:
        client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "Hi"}], tools=[{"type": "web_search_20250305", "name": "web_search"}])
    except anthropic.BadRequestError as error:
        print("messages", type(error).__name__, error.body)


def responses(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
    for is_stream in (False, True):
        said: list = [{"role": "user", "content": [
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
            {"type": "input_text", "text": ASKS[0]},
        ]}]
        for turn in range(2):
            asked = {
                "model": MODEL,
                "instructions": "Be brief.",
                "input": said,
                "tools": [{"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}],
                "max_output_tokens": 100,
            }
            if is_stream:
                with client.responses.stream(**asked) as stream:
                    kinds = [event.type for event in stream]
                    print("responses events", *dict.fromkeys(kinds))
                    answer = stream.get_final_response()
            else:
                answer = client.responses.create(**asked)
            print("responses", [item.type for item in answer.output], answer.status, answer.usage.input_tokens > 0 < answer.usage.output_tokens)
            results = [{"type": "function_call_output", "call_id": item.call_id, "output": item.arguments} for item in answer.output if item.type == "function_call"]
            said += [*(item.model_dump(exclude_none=True) for item in answer.output), *results, {"role": "user", "content": ASKS[1]}]
    try:
        client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_1")
    except openai.BadRequestError as error:
        print("responses", type(error).__name__, error.body)


def gemini(url: str) -> None:
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=url, timeout=20_000))
    look = types.FunctionDeclaration(name="look", description="Looks.", parameters=types.Schema(type="OBJECT", properties={"where": types.Schema(type="STRING")}))
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[types.Tool(function_declarations=[look])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=types.ThinkingConfig(include_thoughts=True),
        max_output_tokens=100,
    )
    for is_stream in (False, True):
        said = [types.Content(role="user", parts=[
            types.Part.from_bytes(data=b"png", mime_type="image/png"),
            types.Part(text=ASKS[0]),
        ])]
        for turn in range(2):
            asked = {"model": MODEL, "contents": said, "config": config}
            if is_stream:
                chunks = list(client.models.generate_content_stream(**asked))
                parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
                last = chunks[-1]
            else:
                last = client.models.generate_content(**asked)
                parts = last.candidates[0].content.parts
            kinds = ["thought" if part.thought else "call" if part.function_call else "text" for part in parts]
            print("gemini", *dict.fromkeys(kinds), last.candidates[0].finish_reason.value, last.usage_metadata.prompt_token_count > 0 < last.usage_metadata.candidates_token_count)
            calls = [part.function_call for part in parts if part.function_call]
            results = [types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=call.args)) for call in calls]
            said += [types.Content(role="model", parts=parts), types.Content(role="user", parts=[*results, types.Part(text=ASKS[1])])]
    try:
        client.models.generate_content(model=MODEL, contents="Hi #fail=429")
    except genai.errors.APIError as error:
        print("gemini", error)


for ask in (messages, responses, gemini):
    ask(sys.argv[1])
