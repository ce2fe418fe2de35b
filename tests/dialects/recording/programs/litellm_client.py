"""An agent of LiteLLM: `litellm_client.py sync|stream|responses|rstream|messages RECORDER`.

`callback` as recorder is LiteLLM's own, which logs after an answer and so is given a moment.
"""

import asyncio
import json
import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of

SERVER = {"api_base": f"{os.environ['MODEL_URL']}/v1", "api_key": "key"}


async def run_chat(litellm, *, is_stream: bool) -> None:
    messages = [{"role": "system", "content": SYSTEM}]
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    for question in QUESTIONS:
        messages = [*messages, {"role": "user", "content": question}]
        while True:
            asked = {"model": "openai/fake-model", "tools": tools, "messages": messages, "stream": is_stream}
            answer = await litellm.acompletion(**asked, **SERVER)
            if is_stream:
                answer = litellm.stream_chunk_builder([chunk async for chunk in answer])
            said = answer.choices[0].message.model_dump(include={"role", "content", "tool_calls"})
            said = {name: value for name, value in said.items() if value is not None or name == "content"}
            calls = said.get("tool_calls") or ()
            results = [
                {
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "content": result_of(call["function"]["name"], json.loads(call["function"]["arguments"])),
                }
                for call in calls
            ]
            messages = [*messages, said, *results]
            if not calls:
                break


async def run_responses(litellm, *, is_stream: bool) -> None:
    items = []
    tools = [{"type": "function", **tool} for tool in TOOLS]
    for question in QUESTIONS:
        items = [*items, {"role": "user", "content": question}]
        while True:
            asked = {"model": "openai/fake-model", "instructions": SYSTEM, "input": items, "tools": tools, **SERVER}
            answer = await litellm.aresponses(**asked, stream=is_stream)
            if is_stream:
                answer = [event async for event in answer][-1].response
            output = [item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in answer.output]
            calls = [item for item in output if item["type"] == "function_call"]
            results = [
                {
                    "type": "function_call_output",
                    "call_id": call["call_id"],
                    "output": result_of(call["name"], json.loads(call["arguments"])),
                }
                for call in calls
            ]
            items = [*items, *output, *results]
            if not calls:
                break


async def run_messages(litellm) -> None:
    messages = []
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS
    ]
    asked = {"model": "anthropic/claude-test-1", "max_tokens": 1000, "system": SYSTEM, "tools": tools}
    server = {"api_base": os.environ["MODEL_URL"], "api_key": "key"}
    for question in QUESTIONS:
        messages = [*messages, {"role": "user", "content": question}]
        while True:
            content = (await litellm.anthropic.messages.acreate(**asked, messages=messages, **server))["content"]
            blocks = [block if isinstance(block, dict) else block.model_dump(exclude_none=True) for block in content]
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": result_of(block["name"], block["input"])}
                for block in blocks
                if block["type"] == "tool_use"
            ]
            messages = [*messages, {"role": "assistant", "content": blocks}]
            if not results:
                break
            messages = [*messages, {"role": "user", "content": results}]


async def run(litellm, mode: str) -> None:
    if mode == "messages":
        await run_messages(litellm)
    else:
        runs = run_responses if mode in ("responses", "rstream") else run_chat
        await runs(litellm, is_stream=mode in ("stream", "rstream"))
    await asyncio.sleep(2)


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how.replace("callback", "own")):
        import litellm

        litellm.callbacks = ["otel"] if how == "callback" else []
        asyncio.run(run(litellm, mode))
