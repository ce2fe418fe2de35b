"""Anthropic's messages by InvokeModel of Bedrock's client."""

import json

import boto3

from tests.tracing.apps.clients.task import QUESTION, SCHEMA, SYSTEM, TOOL, get_weather

MODEL = "anthropic.claude-3-5-sonnet-20240620-v1:0"


class Agent:
    """Its ways: whole, stream, and a stream that is left."""

    def __init__(self, url: str) -> None:
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        self.client = boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", **keys)
        self.messages: list[dict] = [{"role": "user", "content": QUESTION}]

    def _asked(self) -> dict:
        about = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 99, "system": SYSTEM}
        body = about | {"tools": [TOOL | {"input_schema": SCHEMA}], "messages": self.messages}
        return {"modelId": MODEL, "body": json.dumps(body)}

    def whole(self):
        return json.loads(self.client.invoke_model(**self._asked())["body"].read())["content"]

    def stream(self):
        blocks: list[dict] = []
        inputs: dict[int, str] = {}
        for event in self.client.invoke_model_with_response_stream(**self._asked())["body"]:
            match json.loads(event["chunk"]["bytes"]):
                case {"type": "content_block_start", "content_block": block}:
                    blocks.append(block)
                case {"type": "content_block_delta", "index": at, "delta": {"text": text}}:
                    blocks[at]["text"] += text
                case {"type": "content_block_delta", "index": at, "delta": {"partial_json": piece}}:
                    inputs[at] = inputs.get(at, "") + piece
        for at, given in inputs.items():
            blocks[at]["input"] = json.loads(given)
        return blocks

    def abandoned(self):
        for _ in zip(range(3), self.client.invoke_model_with_response_stream(**self._asked())["body"], strict=False):
            pass
        return []

    def goes_on(self, blocks: list[dict]) -> bool:
        """Answer the calls; False where there is none."""
        uses = [block for block in blocks if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": use["id"], "content": get_weather(**use["input"])} for use in uses
        ]
        self.messages.extend([{"role": "assistant", "content": blocks}, {"role": "user", "content": results}])
        return bool(uses)
