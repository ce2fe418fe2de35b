"""A model of vLLM by LiteLLM."""

import json

import litellm

from tests.tracing.apps.clients.task import QUESTION, SCHEMA, SYSTEM, TOOL, get_weather


def message_of(answer) -> dict:
    return answer.choices[0].message.model_dump(include={"role", "content", "tool_calls"})


class Agent:
    """Its ways: whole and stream, each also async, and a stream that is left."""

    def __init__(self, url: str) -> None:
        self.messages: list[dict] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        tools = [{"type": "function", "function": TOOL | {"parameters": SCHEMA}}]
        server = {"model": "hosted_vllm/m", "api_base": f"{url}/v1", "api_key": "key"}
        self.asked = server | {"messages": self.messages, "tools": tools}

    def whole(self):
        return message_of(litellm.completion(**self.asked))

    def stream(self):
        return message_of(litellm.stream_chunk_builder(list(litellm.completion(**self.asked, stream=True))))

    async def async_whole(self):
        return message_of(await litellm.acompletion(**self.asked))

    async def async_stream(self):
        chunks = [chunk async for chunk in await litellm.acompletion(**self.asked, stream=True)]
        return message_of(litellm.stream_chunk_builder(chunks))

    def abandoned(self):
        for _ in zip(range(4), litellm.completion(**self.asked, stream=True), strict=False):
            pass
        return {}

    def goes_on(self, message: dict) -> bool:
        """Answer the calls; False where there is none."""
        self.messages.append(message)
        for call in message.get("tool_calls") or ():
            result = get_weather(**json.loads(call["function"]["arguments"]))
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return bool(message.get("tool_calls"))
