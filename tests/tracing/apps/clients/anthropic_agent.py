"""Messages of Anthropic's client."""

import json

from anthropic import Anthropic, AsyncAnthropic

from tests.tracing.apps.clients.task import QUESTION, SCHEMA, SYSTEM, TOOL, get_weather


def blocks_of(message) -> list[dict]:
    return [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in message.content]


class Joined:
    """Blocks of a raw stream."""

    def __init__(self) -> None:
        self.blocks: list[dict] = []

    def add(self, event) -> None:
        if event.type == "content_block_start":
            self.blocks.append(event.content_block.model_dump(include={"type", "text", "id", "name"}) | {"input": ""})
        elif event.type == "content_block_delta":
            field = {"text_delta": "text", "input_json_delta": "input"}[event.delta.type]
            piece = event.delta.text if field == "text" else event.delta.partial_json
            self.blocks[event.index][field] += piece
        elif event.type == "content_block_stop":
            given = self.blocks[event.index].pop("input")
            self.blocks[event.index] |= {"input": json.loads(given)} if given else {}


class Agent:
    """Its ways: whole, stream (the client's own object), raw (`stream=True`), async ones, and those of `beta`."""

    def __init__(self, url: str) -> None:
        self.client = Anthropic(base_url=url, api_key="key")
        self.aclient = AsyncAnthropic(base_url=url, api_key="key")
        self.messages: list[dict] = [{"role": "user", "content": QUESTION}]
        tools = [TOOL | {"input_schema": SCHEMA}]
        self.asked = {"model": "m", "max_tokens": 99, "system": SYSTEM, "tools": tools, "messages": self.messages}

    def whole(self):
        return blocks_of(self.client.messages.create(**self.asked))

    def stream(self):
        with self.client.messages.stream(**self.asked) as stream:
            for _ in stream:
                pass
            return blocks_of(stream.get_final_message())

    def text_stream(self):
        with self.client.messages.stream(**self.asked) as stream:
            assert "".join(stream.text_stream)
            return blocks_of(stream.get_final_message())

    def final_message(self):
        with self.client.messages.stream(**self.asked) as stream:
            return blocks_of(stream.get_final_message())

    def raw(self):
        joined = Joined()
        for event in self.client.messages.create(**self.asked, stream=True):
            joined.add(event)
        return joined.blocks

    async def async_whole(self):
        return blocks_of(await self.aclient.messages.create(**self.asked))

    async def async_stream(self):
        async with self.aclient.messages.stream(**self.asked) as stream:
            async for _ in stream:
                pass
            return blocks_of(await stream.get_final_message())

    async def async_text_stream(self):
        async with self.aclient.messages.stream(**self.asked) as stream:
            assert "".join([text async for text in stream.text_stream])
            return blocks_of(await stream.get_final_message())

    async def async_raw(self):
        joined = Joined()
        async for event in await self.aclient.messages.create(**self.asked, stream=True):
            joined.add(event)
        return joined.blocks

    def beta_whole(self):
        return blocks_of(self.client.beta.messages.create(**self.asked))

    def beta_stream(self):
        with self.client.beta.messages.stream(**self.asked) as stream:
            for _ in stream:
                pass
            return blocks_of(stream.get_final_message())

    async def async_beta_stream(self):
        async with self.aclient.beta.messages.stream(**self.asked) as stream:
            async for _ in stream:
                pass
            return blocks_of(await stream.get_final_message())

    def beta_raw(self):
        joined = Joined()
        for event in self.client.beta.messages.create(**self.asked, stream=True):
            joined.add(event)
        return joined.blocks

    def with_raw_response(self):
        return blocks_of(self.client.messages.with_raw_response.create(**self.asked).parse())

    def abandoned(self):
        with self.client.messages.stream(**self.asked) as stream:
            for _ in zip(range(4), stream, strict=False):
                pass
        return []

    def goes_on(self, blocks: list[dict]) -> bool:
        """Answer the calls; False where there is none."""
        self.messages.append({"role": "assistant", "content": blocks})
        uses = [block for block in blocks if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": use["id"], "content": get_weather(**use["input"])} for use in uses
        ]
        self.messages.append({"role": "user", "content": results})
        return bool(uses)
