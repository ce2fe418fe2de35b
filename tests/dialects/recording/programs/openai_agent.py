"""An agent of OpenAI's Agents SDK: `openai_agent.py chat|stream|responses|rstream RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import FUNCTIONS, QUESTIONS, SYSTEM


async def run(mode: str) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
    from openai import AsyncOpenAI

    kind = OpenAIChatCompletionsModel if mode in ("chat", "stream") else OpenAIResponsesModel
    client = AsyncOpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    model = kind(model="fake-model", openai_client=client)
    tools = [function_tool(function, strict_mode=False) for function in FUNCTIONS]
    agent = Agent(name="weather", instructions=SYSTEM, model=model, tools=tools)
    items = []
    for question in QUESTIONS:
        asked = [*items, {"role": "user", "content": question}]
        if mode in ("stream", "rstream"):
            result = Runner.run_streamed(agent, asked)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, asked)
        items = result.to_input_list()


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how):
        asyncio.run(run(mode))
