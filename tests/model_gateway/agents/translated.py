"""What agents of three clients see of a model: `translated.py URL` asks by each, whole and streamed, and prints it."""

import base64
import sys

import anthropic
import openai
from google import genai
from google.genai import types

MODEL = "m"
PARAMETERS = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
PIXEL = base64.b64encode(b"a picture").decode()
ASKS = ("Look #think=1 #calls=2", "What is it? #think=1")


def messages(url: str, *, is_stream: bool) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    said: list = [{"role": "user", "content": [image, {"type": "text", "text": ASKS[0]}]}]
    for _ in range(2):
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
                print("events", *dict.fromkeys(event.type for event in stream))
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**asked)
        print(*(block.type for block in answer.content), answer.stop_reason, is_counted(answer.usage.input_tokens))
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": str(block.input)}
            for block in answer.content
            if block.type == "tool_use"
        ]
        next_one = {"role": "user", "content": [*results, {"type": "text", "text": ASKS[1]}]}
        said += [{"role": "assistant", "content": answer.content}, next_one]
    tool = {"type": "web_search_20250305", "name": "web_search"}
    for text, tools in (("Hi #fail=429", []), ("Hi", [tool])):
        try:
            client.messages.create(
                model=MODEL, max_tokens=9, messages=[{"role": "user", "content": text}], tools=tools, stream=is_stream
            )
        except anthropic.APIStatusError as error:
            print(type(error).__name__, error.body)


def responses(url: str, *, is_stream: bool) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    said: list = [{"role": "user", "content": [image, {"type": "input_text", "text": ASKS[0]}]}]
    for _ in range(2):
        asked = {
            "model": MODEL,
            "instructions": "Be brief.",
            "input": said,
            "tools": [{"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}],
            "max_output_tokens": 100,
        }
        if is_stream:
            with client.responses.stream(**asked) as stream:
                print("events", *dict.fromkeys(event.type for event in stream))
                answer = stream.get_final_response()
        else:
            answer = client.responses.create(**asked)
        print(*(item.type for item in answer.output), answer.status, is_counted(answer.usage.input_tokens))
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": item.arguments}
            for item in answer.output
            if item.type == "function_call"
        ]
        items = [item.model_dump(exclude_none=True) for item in answer.output]
        said += [*items, *results, {"role": "user", "content": ASKS[1]}]
    for asked in ({"input": "Hi #fail=429"}, {"input": "Hi", "background": True}):
        try:
            client.responses.create(model=MODEL, stream=is_stream, **asked)
        except openai.APIStatusError as error:
            print(type(error).__name__, error.body)


def gemini(url: str, *, is_stream: bool) -> None:
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=url, timeout=20_000))
    schema = types.Schema(type="OBJECT", properties={"where": types.Schema(type="STRING")}, required=["where"])
    look = types.FunctionDeclaration(name="look", description="Looks.", parameters=schema)
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[types.Tool(function_declarations=[look])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=types.ThinkingConfig(include_thoughts=True),
        max_output_tokens=100,
    )
    image = types.Part.from_bytes(data=b"a picture", mime_type="image/png")
    said = [types.Content(role="user", parts=[image, types.Part(text=ASKS[0])])]
    for _ in range(2):
        asked = {"model": MODEL, "contents": said, "config": config}
        if is_stream:
            chunks = list(client.models.generate_content_stream(**asked))
            parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or ()]
            last = chunks[-1]
        else:
            last = client.models.generate_content(**asked)
            parts = last.candidates[0].content.parts
        kinds = ["thought" if part.thought else "call" if part.function_call else "text" for part in parts]
        counted = is_counted(last.usage_metadata.prompt_token_count)
        print(*dict.fromkeys(kinds), last.candidates[0].finish_reason.value, counted)
        calls = [part.function_call for part in parts if part.function_call]
        results = [
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=call.args))
            for call in calls
        ]
        answer = types.Content(role="model", parts=parts)
        said += [answer, types.Content(role="user", parts=[*results, types.Part(text=ASKS[1])])]
    search = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    for text, asked in (("Hi #fail=429", None), ("Hi", search)):
        try:
            if is_stream:
                list(client.models.generate_content_stream(model=MODEL, contents=text, config=asked))
            else:
                client.models.generate_content(model=MODEL, contents=text, config=asked)
        except genai.errors.APIError as error:
            print(error.code, error.status, error.message)


def is_counted(count: int) -> str:
    return "counted" if count > 0 else "uncounted"


for ask in (messages, responses, gemini):
    for way in (False, True):
        print(f"## {ask.__name__} {'streamed' if way else 'whole'}")
        ask(sys.argv[1], is_stream=way)
