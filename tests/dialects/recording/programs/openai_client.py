"""An agent of the OpenAI client: `openai_client.py chat|stream|responses|rstream RECORDER`."""

import json
import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of


def run_chat(client, *, is_stream: bool) -> None:
    messages = [{"role": "system", "content": SYSTEM}]
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    asked = {"model": "fake-model", "messages": messages, "tools": tools}
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            if is_stream:
                options = {"stream": True, "stream_options": {"include_usage": True}}
                said = joined(client.chat.completions.create(**asked, **options))
            else:
                message = client.chat.completions.create(**asked).choices[0].message
                said = message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
            messages.append(said)
            if not said.get("tool_calls"):
                break
            for call in said["tool_calls"]:
                result = result_of(call["function"]["name"], json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def joined(stream) -> dict:
    said = {"role": "assistant", "content": "", "tool_calls": []}
    for chunk in stream:
        for choice in chunk.choices:
            said["content"] += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                if call.id:
                    function = {"name": call.function.name, "arguments": ""}
                    said["tool_calls"].append({"id": call.id, "type": "function", "function": function})
                said["tool_calls"][call.index]["function"]["arguments"] += call.function.arguments
    return {name: value for name, value in said.items() if value}


def run_responses(client, *, is_stream: bool) -> None:
    items = []
    asked = {"model": "fake-model", "instructions": SYSTEM, "tools": [{"type": "function", **tool} for tool in TOOLS]}
    for question in QUESTIONS:
        items = [*items, {"role": "user", "content": question}]
        while True:
            if is_stream:
                events = list(client.responses.create(**asked, input=items, stream=True))
                output = events[-1].response.output
            else:
                output = client.responses.create(**asked, input=items).output
            items = items + [item.model_dump(exclude_none=True) for item in output if item.type != "reasoning"]
            calls = [item for item in output if item.type == "function_call"]
            if not calls:
                break
            items += [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": result_of(call.name, json.loads(call.arguments)),
                }
                for call in calls
            ]


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how) as wrapped:
        from openai import OpenAI

        openai = wrapped(OpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key"))
        run = run_chat if mode in ("chat", "stream") else run_responses
        run(openai, is_stream=mode in ("stream", "rstream"))
