"""An agent of boto3: `bedrock_client.py converse|stream|invoke RECORDER`."""

import json
import os
import sys

from recorder import recorded
from task import QUESTIONS, SYSTEM, TOOLS, result_of

MODEL = "anthropic.claude-3-5-sonnet-20240620-v1:0"


def run_converse(client, *, is_stream: bool) -> None:
    messages = []
    specs = [
        {"name": tool["name"], "description": tool["description"], "inputSchema": {"json": tool["parameters"]}}
        for tool in TOOLS
    ]
    tools = [{"toolSpec": spec} for spec in specs]
    asked = {"modelId": MODEL, "system": [{"text": SYSTEM}], "toolConfig": {"tools": tools}}
    asked["inferenceConfig"] = {"maxTokens": 300, "temperature": 0.5}
    for question in QUESTIONS:
        messages.append({"role": "user", "content": [{"text": question}]})
        while True:
            if is_stream:
                said = joined(client.converse_stream(**asked, messages=messages)["stream"])
            else:
                said = client.converse(**asked, messages=messages)["output"]["message"]
            messages.append(said)
            uses = [block["toolUse"] for block in said["content"] if "toolUse" in block]
            if not uses:
                break
            results = [
                {
                    "toolResult": {
                        "toolUseId": use["toolUseId"],
                        "content": [{"text": result_of(use["name"], use["input"])}],
                    }
                }
                for use in uses
            ]
            messages.append({"role": "user", "content": results})


def joined(stream) -> dict:
    blocks = {}
    for event in stream:
        if "contentBlockStart" in event:
            begun = event["contentBlockStart"]
            blocks[begun["contentBlockIndex"]] = {"toolUse": begun["start"]["toolUse"] | {"input": ""}}
        if "contentBlockDelta" in event:
            at, delta = event["contentBlockDelta"]["contentBlockIndex"], event["contentBlockDelta"]["delta"]
            if "text" in delta:
                blocks.setdefault(at, {"text": ""})["text"] += delta["text"]
            else:
                blocks[at]["toolUse"]["input"] += delta["toolUse"]["input"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return {"role": "assistant", "content": list(blocks.values())}


def run_invoke(client) -> None:
    messages = []
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS
    ]
    about = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 500, "system": SYSTEM, "tools": tools}
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            body = json.dumps(about | {"messages": messages})
            blocks = json.loads(client.invoke_model(modelId=MODEL, body=body)["body"].read())["content"]
            messages.append({"role": "assistant", "content": blocks})
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": result_of(block["name"], block["input"])}
                for block in blocks
                if block["type"] == "tool_use"
            ]
            if not results:
                break
            messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how) as wrapped:
        import boto3

        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        url = os.environ["MODEL_URL"]
        bedrock = wrapped(boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", **keys))
        if mode == "invoke":
            run_invoke(bedrock)
        else:
            run_converse(bedrock, is_stream=mode == "stream")
