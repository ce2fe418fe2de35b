"""Converse of Bedrock's client."""

import json

import boto3

from tests.tracing.apps.clients.task import QUESTION, SCHEMA, SYSTEM, TOOL, get_weather


class Agent:
    """Its ways: whole, stream, and a stream that is left."""

    def __init__(self, url: str) -> None:
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        self.client = boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", **keys)
        self.messages: list[dict] = [{"role": "user", "content": [{"text": QUESTION}]}]
        tools = {"tools": [{"toolSpec": TOOL | {"inputSchema": {"json": SCHEMA}}}]}
        system = [{"text": SYSTEM}]
        self.asked = {"modelId": "anthropic.claude-m", "system": system, "toolConfig": tools, "messages": self.messages}

    def whole(self):
        return self.client.converse(**self.asked)["output"]["message"]

    def stream(self):
        blocks: dict[int, dict] = {}
        for event in self.client.converse_stream(**self.asked)["stream"]:
            match event:
                case {"contentBlockStart": {"contentBlockIndex": at, "start": {"toolUse": use}}}:
                    blocks[at] = {"toolUse": use | {"input": ""}}
                case {"contentBlockDelta": {"contentBlockIndex": at, "delta": {"text": text}}}:
                    blocks.setdefault(at, {"text": ""})["text"] += text
                case {"contentBlockDelta": {"contentBlockIndex": at, "delta": {"toolUse": {"input": piece}}}}:
                    blocks[at]["toolUse"]["input"] += piece
                case {"contentBlockStop": {"contentBlockIndex": at}} if "toolUse" in blocks[at]:
                    blocks[at]["toolUse"]["input"] = json.loads(blocks[at]["toolUse"]["input"])
        return {"role": "assistant", "content": list(blocks.values())}

    def abandoned(self):
        for _ in zip(range(3), self.client.converse_stream(**self.asked)["stream"], strict=False):
            pass
        return {"content": []}

    def goes_on(self, message: dict) -> bool:
        """Answer the calls; False where there is none."""
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        results = [
            {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": get_weather(**use["input"])}]}}
            for use in uses
        ]
        self.messages.extend([message, {"role": "user", "content": results}])
        return bool(uses)
