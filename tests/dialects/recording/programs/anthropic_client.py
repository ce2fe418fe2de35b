"""An agent of the Anthropic client: `anthropic_client.py sync|thinking|stream|helper RECORDER`.

A stream is a raw one, the helper's is the client's own way to join one.
"""

import json
import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of

INCLUDED = {"type", "text", "thinking", "signature", "id", "name", "input"}


def run(client, mode: str) -> None:
    messages = []
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS
    ]
    asked = {"model": "claude-test-1", "max_tokens": 2000, "system": SYSTEM, "tools": tools, "messages": messages}
    if mode == "thinking":
        asked["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            if mode == "stream":
                blocks = joined(client.messages.create(**asked, stream=True))
            elif mode == "helper":
                with client.messages.stream(**asked) as stream:
                    blocks = dumped(stream.get_final_message().content)
            else:
                blocks = dumped(client.messages.create(**asked).content)
            messages.append({"role": "assistant", "content": blocks})
            results = [result(block) for block in blocks if block["type"] == "tool_use"]
            if not results:
                break
            messages.append({"role": "user", "content": results})


def dumped(content) -> list[dict]:
    return [block.model_dump(include=INCLUDED) for block in content]


def result(block: dict) -> dict:
    said = result_of(block["name"], block["input"])
    failed = {"is_error": True} if said.startswith("Error") else {}
    return {"type": "tool_result", "tool_use_id": block["id"], "content": said} | failed


def joined(stream) -> list[dict]:
    blocks, inputs = [], {}
    for event in stream:
        if event.type == "content_block_start":
            blocks.append(event.content_block.model_dump(include=INCLUDED))
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            blocks[event.index]["text"] += event.delta.text
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            inputs[event.index] = inputs.get(event.index, "") + event.delta.partial_json
    for at, text in inputs.items():
        blocks[at]["input"] = json.loads(text)
    return blocks


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how) as wrapped:
        from anthropic import Anthropic

        run(wrapped(Anthropic(base_url=os.environ["MODEL_URL"], api_key="key")), mode)
