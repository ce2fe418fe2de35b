"""An agent of OpenAI's Agents SDK: `openai_agent.py chat|stream|responses|rstream RECORDER`."""

import asyncio
import os
import sys

from recorder import recorded
from task import QUESTION, SYSTEM, get_weather


async def run(mode: str) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
    from openai import AsyncOpenAI

    kind = OpenAIChatCompletionsModel if mode in ("chat", "stream") else OpenAIResponsesModel
    client = AsyncOpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="key")
    model = kind(model="fake-model", openai_client=client)
    agent = Agent(name="weather", instructions=SYSTEM, model=model, tools=[function_tool(get_weather)])
    if mode in ("stream", "rstream"):
        async for _ in Runner.run_streamed(agent, QUESTION).stream_events():
            pass
    else:
        await Runner.run(agent, QUESTION)


if __name__ == "__main__":
    mode, how = sys.argv[1:]
    with recorded(how):
        asyncio.run(run(mode))
