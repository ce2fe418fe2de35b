"""An agent of the Anthropic client: `anthropic_client.py sync|stream RECORDER`; a stream is a raw one."""

import json
import os
import sys

from recorder import recorded
from task import DESCRIPTION, NAME, PARAMETERS, QUESTION, SYSTEM, get_weather

TOOL = {"name": NAME, "description": DESCRIPTION, "input_schema": PARAMETERS}


def run(client, *, is_stream: bool) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "claude-test-1", "max_tokens": 500, "system": SYSTEM, "tools": [TOOL], "messages": messages}
    while True:
        if is_stream:
            blocks = joined(client.messages.create(**asked, stream=True))
        else:
            content = client.messages.create(**asked).content
            blocks = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in content]
        messages.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": get_weather(**block["input"])}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        if not results:
            return
        messages.append({"role": "user", "content": results})


def joined(stream) -> list[dict]:
    blocks, inputs = [], {}
    for event in stream:
        if event.type == "content_block_start":
            blocks.append(event.content_block.model_dump(include={"type", "text", "id", "name", "input"}))
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

        run(wrapped(Anthropic(base_url=os.environ["MODEL_URL"], api_key="key")), is_stream=mode == "stream")
